"""Checkpoints: one file that has all that predicting or resuming needs, and that cannot run code when loaded.

And how any file of a run is written: whole, by one process.
"""

import fcntl
import io
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lookback.schema import ConfigError

FORMAT = 1
PARTIAL = ".lookback-partial"  # how the name of an unfinished file ends
ABANDONED = 3600  # seconds since anything was written to one, after which it counts as left by a killed process
WRONG_CONTENTS = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, MemoryError)


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that `path` always holds a whole one: to a file beside it, synced, then renamed.

    The file beside it has a name of its own, so that several processes may write at once. Those of processes that
    were killed are removed by a later writing into the same folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    beside = path.parent / f"{secrets.token_hex(8)}{PARTIAL}"
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def writable(option: str, path: Path) -> Path:
    """A file that can be written at the end; found out before there is anything to lose.

    Raises:
        ValueError: if it is a folder, or in none.
    """
    if path.is_dir():
        raise ValueError(f"{option} must be a file, but {path} is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"{option}: no such folder: {path.parent}")
    return path


def _remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files that nobody has written to for long."""
    for path in folder.glob(f"*{PARTIAL}"):
        ours = re.fullmatch("[0-9a-f]{16}", path.name.removesuffix(PARTIAL))
        with suppress(OSError):  # another process may do the same
            if ours and time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working in a folder; the lock goes with the process, however it ends.

    Raises:
        CheckpointError: if another process has it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise CheckpointError(f"{folder}: another process is working in this run folder") from error
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether another process is working in a folder."""
    try:
        with locked(folder):
            return False
    except CheckpointError:
        return True


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: where it goes.
        content: tensors, numbers, text, lists and dictionaries of these.
    """
    buffer = io.BytesIO()  # torch would hide that a disk is full
    torch.save({"format": FORMAT, **content}, buffer)
    write_whole(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; whoever uses a part moves it where it belongs.

    Raises:
        CheckpointError: if there is no such file, or it is not a whole checkpoint of this format.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint")
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        found = content["format"]
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
