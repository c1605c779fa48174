"""What a run folder keeps of the model, and where."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lookback import checkpoint
from lookback.checkpoint import CheckpointError

MOST_SNAPSHOTS = 50
STEP = "[0-9]{8}|[1-9][0-9]{8,17}"  # what f"{step:08d}" gives


RESUMABLE = ("last", "previous", "best")  # checkpoints that have all that going on needs, by preference


def checkpoint_path(folder: Path, which: str | int) -> Path:
    """Where a run keeps its `best`, `last` or `previous` checkpoint, or the weights of a step."""
    name = which if isinstance(which, str) else f"steps/{which:08d}"
    return folder / "checkpoints" / f"{name}.pt"


def has_begun(folder: Path) -> bool:
    """Whether a run has something to go on from."""
    return any(checkpoint_path(folder, which).exists() for which in RESUMABLE)


def save_last(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the checkpoint from which a run goes on, and keep the one before it, should this one be damaged."""
    checkpoint.save(checkpoint_path(folder, "last"), dict(content), checkpoint_path(folder, "previous"))


def load_last(folder: Path, tell: Callable[[str], object] = print) -> tuple[Path, dict[str, Any]]:
    """Read the checkpoint from which a run goes on: the last one, or the best one before it that is not damaged.

    A damaged one is put aside, so that it is never kept in the place of a good one.

    Args:
        folder: of the run.
        tell: gets a line for each file that is damaged.

    Returns:
        where it was, and what is in it.

    Raises:
        CheckpointError: if there is none, or none that can be read.
    """
    first: CheckpointError | None = None
    for which in RESUMABLE:
        path = checkpoint_path(folder, which)
        try:
            content = checkpoint.load(path)
        except CheckpointError as error:
            first = first or error
            continue
        if first is not None:
            tell(f"{first}; going on from {path.name} before it")
            damaged = checkpoint_path(folder, "last")
            if damaged.exists():
                damaged.replace(damaged.with_suffix(".damaged"))
        return path, content
    assert first is not None
    raise first


def load_best(folder: Path) -> dict[str, Any]:
    """Read the checkpoint of the best weights.

    Raises:
        CheckpointError: if there is none, or it cannot be read.
    """
    path = checkpoint_path(folder, "best")
    try:
        return checkpoint.load(path)
    except CheckpointError as error:
        hint = f"; remove {path.name} to go on without the best weights so far" if path.exists() else ""
        raise CheckpointError(f"{error}{hint}") from error


def stepped(folder: Path, suffix: str) -> dict[int, Path]:
    """The files of a folder that are named for a step as this package names them, such as 00000400.pt, in order."""
    named = [path for path in folder.glob(f"*{suffix}") if re.fullmatch(STEP, path.stem) and path.is_file()]
    return {int(path.stem): path for path in sorted(named, key=lambda path: int(path.stem))}


def snapshots(folder: Path) -> list[int]:
    """The steps whose weights a run has kept, in order."""
    return list(_kept(folder))


def _kept(folder: Path) -> dict[int, Path]:
    return stepped(folder / "checkpoints" / "steps", ".pt")


def remove(path: Path, tell: Callable[[str], object] = print) -> None:
    """Remove a file that a run can do without; one that cannot be removed is told, and nothing ends.

    Args:
        path: of the file, which may be gone already.
        tell: gets one line.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        tell(f"{path} should go, but cannot be removed: {error.strerror}")


def forget_later(folder: Path, start: int, tell: Callable[[str], object] = print) -> None:
    """Drop the weights of steps after the one from which a run goes on; what cannot be removed is told."""
    for step, path in _kept(folder).items():
        if step > start:
            remove(path, tell)


def keep_weights(
    folder: Path, step: int, content: Mapping[str, Any], tell: Callable[[str], object] = print
) -> None:
    """Keep a step's weights, and nothing else of the training; of too many steps, evenly spread ones stay.

    Args:
        folder: of the run.
        step: updates done; no later step is there.
        content: the weights, and what reading them needs: `config`, whose `board.snapshots_every` is the distance
            of two steps, `model` and `task`.
        tell: gets a line for each file that cannot be removed.
    """
    checkpoint.save(checkpoint_path(folder, step), dict(content))
    kept = _kept(folder)
    if len(kept) <= MOST_SNAPSHOTS:
        return
    distance = max(1, content["config"]["board"]["snapshots_every"])
    while step // distance + 2 > MOST_SNAPSHOTS:  # with the first step and this one
        distance *= 2
    last = -distance
    for at, path in kept.items():
        if at - last >= distance:
            last = at
        elif at != step:
            remove(path, tell)


def class_name(node: Mapping[str, Any]) -> str:
    """The class of a node, written as a yaml is named: RnnLuong is rnn_luong."""
    name = str(node["_target_"]).rpartition(".")[2]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
