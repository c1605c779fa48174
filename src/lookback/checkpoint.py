"""Checkpoints: one file that has all that predicting or resuming needs, and that cannot run code when loaded.

And how any file of a run is written: whole, by one process.
"""

import fcntl
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that `path` always holds a whole one: to a file beside it, synced, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".partial")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


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
    if found != FORMAT:
        raise CheckpointError(f"{path}: format must be {FORMAT}, but is {found}")
    return content


def load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Put weights into a model; every name must fit.

    Raises:
        CheckpointError: naming the parameters that are missing, unknown or of another shape.
    """
    wanted = model.state_dict()
    problems = [f"{name} is missing" for name in wanted if name not in weights]
    problems += [f"{name} is unknown" for name in weights if name not in wanted]
    problems += [
        f"{name} has shape {tuple(weights[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in wanted
        if name in weights and weights[name].shape != wanted[name].shape
    ]
    if problems:
        raise CheckpointError(f"{path}: does not fit the model: {'; '.join(problems)}")
    model.load_state_dict(weights)
