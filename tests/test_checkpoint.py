"""A checkpoint is whole or not there, fits or is refused, and never runs code."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lookback import checkpoint
from lookback.checkpoint import CheckpointError


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "last.pt"
    checkpoint.save(path, {"model": {"weight": torch.arange(6.0).view(2, 3)}, "step": 5, "best": None})
    content = checkpoint.load(path)
    assert content["step"] == 5
    assert torch.equal(content["model"]["weight"], torch.arange(6.0).view(2, 3))
    assert [file.name for file in path.parent.iterdir()] == ["last.pt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 1})

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, {"step": 2})
    assert checkpoint.load(path)["step"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing\.pt: no such checkpoint$"):
        checkpoint.load(tmp_path / "nothing.pt")


def test_a_truncated_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"model": {"weight": torch.rand(50, 60)}})
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"last\.pt: not a readable checkpoint"):
        checkpoint.load(path)


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    torch.save({"format": 1, "model": Hostile(target)}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Hostile(target)))
    for name in ("a.pt", "b.pt"):
        with pytest.raises(CheckpointError, match="not a readable checkpoint"):
            checkpoint.load(tmp_path / name)
    assert not target.exists()


def test_another_format_is_refused(tmp_path: Path) -> None:
    torch.save({"format": 99}, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match=r"last\.pt: format must be 1, but is 99$"):
        checkpoint.load(tmp_path / "last.pt")


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    weights = {"weight": torch.zeros(3, 5), "scale": torch.zeros(1)}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load_weights(nn.Linear(2, 3), weights, Path("x.pt"))
    assert str(caught.value) == (
        "x.pt: does not fit the model: bias is missing; scale is unknown; weight has shape (3, 5), not (3, 2)"
    )
