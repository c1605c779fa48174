"""Checkpoints: one file that has all that predicting or resuming needs, and that cannot run code when loaded.

A checkpoint is the zip file that torch writes, with a checksum as its comment: torch does not look at those inside.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lookback.files import write_whole
from lookback.schema import ConfigError

FORMAT = 1
COMMENT = b"lookback blake2b "  # what the comment of a checkpoint begins with
DIGITS = 32
WRONG_CONTENTS = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, MemoryError)


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def save(path: Path, content: dict[str, Any], before: Path | None = None) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: where it goes.
        content: tensors, numbers, text, lists and dictionaries of these.
        before: where the checkpoint that was at `path` is kept; None = it is not.
    """
    buffer = io.BytesIO()  # torch would hide that a disk is full
    torch.save({"format": FORMAT, **content}, buffer)
    body = buffer.getvalue()[:-2]  # a zip file ends with the length of its comment
    comment = COMMENT + _digest(body)
    write_whole(path, body + len(comment).to_bytes(2, "little") + comment, before)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGITS // 2).hexdigest().encode()


def _altered(data: bytes) -> bool:
    """Whether a checkpoint is not what its checksum is of; older ones have none, and count as they are."""
    size = len(COMMENT) + DIGITS
    return data[-size:].startswith(COMMENT) and data[-DIGITS:] != _digest(data[: -size - 2])


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; whoever uses a part moves it where it belongs.

    Raises:
        CheckpointError: if there is no such file, or it is not a whole and unaltered checkpoint of this format.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint")
    try:
        data = path.read_bytes()
        if _altered(data):
            raise CheckpointError(f"{path}: damaged: its checksum is that of other contents")
        content: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        found = content["format"]
    except CheckpointError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged or foreign file
        raise CheckpointError(f"{path}: not a readable checkpoint ({type(error).__name__})") from error
    if not isinstance(found, int) or found != FORMAT:
        raise CheckpointError(f"{path}: format must be {FORMAT}, but is {found}")
    return content


@contextmanager
def reading(path: Path, rule: str) -> Iterator[None]:
    """Inside, whatever is wrong with the contents of a checkpoint is one line that names it.

    Args:
        path: of the checkpoint.
        rule: that is broken then.

    Raises:
        CheckpointError: in the place of any error that contents of a wrong kind can cause.
    """
    try:
        yield
    except CheckpointError:
        raise
    except ConfigError as error:
        raise CheckpointError(f"{path}: {rule} ({'; '.join(map(str, error.problems))})") from error
    except WRONG_CONTENTS as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise CheckpointError(f"{path}: {rule} ({what})") from error


def load_weights(model: nn.Module, weights: object, path: Path) -> None:
    """Put weights into a model; every name must fit.

    Args:
        model: any.
        weights: name -> tensor, as they were read.
        path: where they were read from.

    Raises:
        CheckpointError: naming the parameters that are missing, unknown, no tensor or of another shape.
    """
    if not isinstance(weights, Mapping):
        raise CheckpointError(f"{path}: weights must be tensors by name, but are {type(weights).__name__}")
    wanted = model.state_dict()
    problems = [f"{name} is missing" for name in wanted if name not in weights]
    problems += [f"{name} is unknown" for name in weights if name not in wanted]
    for name in [name for name in wanted if name in weights]:
        found = weights[name]
        if not isinstance(found, Tensor):
            problems.append(f"{name} is {type(found).__name__}, no tensor")
        elif found.shape != wanted[name].shape:
            problems.append(f"{name} has shape {tuple(found.shape)}, not {tuple(wanted[name].shape)}")
    if problems:
        raise CheckpointError(f"{path}: does not fit the model: {'; '.join(problems)}")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:  # such as complex numbers, or a sparse tensor
        raise CheckpointError(f"{path}: does not fit the model: {' '.join(str(error).split())}") from error
