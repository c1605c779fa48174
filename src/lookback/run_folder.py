"""What a run folder keeps of the model, and where."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from lookback import checkpoint

MOST_SNAPSHOTS = 50


def checkpoint_path(folder: Path, which: str | int) -> Path:
    """Where a run keeps its `best` or `last` checkpoint, or the weights of a step."""
    name = which if isinstance(which, str) else f"steps/{which:08d}"
    return folder / "checkpoints" / f"{name}.pt"


def snapshots(folder: Path) -> list[int]:
    """The steps whose weights a run has kept, in order."""
    paths = (folder / "checkpoints" / "steps").glob("*.pt")
    return sorted(int(path.stem) for path in paths if path.stem.isdecimal())


def keep_weights(folder: Path, step: int, raw: Mapping[str, Any], model: nn.Module) -> None:
    """Keep a step's weights, and nothing else of the training; of many steps every second, fourth, ... stays.

    Args:
        folder: of the run.
        step: updates done.
        raw: the run's configuration, whose `board.snapshots_every` is the distance of two steps.
        model: the weights.
    """
    checkpoint.save(checkpoint_path(folder, step), {"config": dict(raw), "model": model.state_dict()})
    stride = max(1, raw["board"]["snapshots_every"])
    while step // stride > MOST_SNAPSHOTS:
        stride *= 2
    for kept in snapshots(folder):
        if kept % stride and kept != step:
            checkpoint_path(folder, kept).unlink()


def class_name(node: Mapping[str, Any]) -> str:
    """The class of a node, written as a yaml is named: RnnLuong is rnn_luong."""
    name = str(node["_target_"]).rpartition(".")[2]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
