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


def test_two_processes_that_write_one_file_at_once_each_write_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync = tmp_path / "results.json", os.fsync

    def other_process_writes(handle: int) -> None:
        fsync(handle)
        monkeypatch.setattr(os, "fsync", fsync)
        checkpoint.write_whole(path, b"the other")
        assert path.read_bytes() == b"the other"

    monkeypatch.setattr(os, "fsync", other_process_writes)
    checkpoint.write_whole(path, b"the first")
    assert path.read_bytes() == b"the first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_processes_left_unfinished_is_removed_by_and_by_and_nothing_else(tmp_path: Path) -> None:
    old, young, foreign, folder = (
        tmp_path / f"{name}{checkpoint.PARTIAL}" for name in ("0123456789abcdef", "a" * 16, "notes", "f" * 16)
    )
    for path in (old, young, foreign):
        path.write_bytes(b"half")
    folder.mkdir()
    for path in (old, foreign, folder):
        os.utime(path, (0, 0))
    checkpoint.write_whole(tmp_path / "a", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a", young.name, foreign.name, folder.name}


def test_a_written_file_can_be_read_by_those_who_may_read_others(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    checkpoint.write_whole(tmp_path / "whole", b"")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


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


@pytest.mark.parametrize("content", [[1], {}, {"format": "one"}, {"format": torch.ones(2)}, torch.zeros(2)])
def test_whatever_else_torch_can_load_is_named(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match=r"last\.pt: (not a readable checkpoint|format must be 1, but is )"):
        checkpoint.load(tmp_path / "last.pt")


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


@pytest.mark.parametrize(
    ("weight", "what"),
    [
        ([1.0, 2.0], "weight is list, no tensor"),
        (None, "weight is NoneType, no tensor"),
        (torch.zeros(3, 2).to_sparse(), "Error"),
    ],
)
def test_weights_of_another_kind_are_refused_in_one_line(weight: Any, what: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load_weights(nn.Linear(2, 3), {"weight": weight, "bias": torch.zeros(3)}, Path("x.pt"))
    assert str(caught.value).startswith("x.pt: does not fit the model: ")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
