"""What a run folder keeps of the model, and where."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lookback import checkpoint

MOST_SNAPSHOTS = 50
STEP = "[0-9]{8}|[1-9][0-9]{8,17}"  # what f"{step:08d}" gives


def checkpoint_path(folder: Path, which: str | int) -> Path:
    """Where a run keeps its `best` or `last` checkpoint, or the weights of a step."""
    name = which if isinstance(which, str) else f"steps/{which:08d}"
    return folder / "checkpoints" / f"{name}.pt"


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
