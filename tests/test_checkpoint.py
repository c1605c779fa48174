"""A checkpoint is whole or not there, fits or is refused, and never runs code."""

import os
import pickle
import zipfile
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


@pytest.mark.parametrize("where", [0.0, 0.3, 0.5, 0.7, 0.999])
def test_one_altered_bit_anywhere_is_noticed(tmp_path: Path, where: float) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"model": {"weight": torch.arange(600.0)}, "step": 5})
    data = bytearray(path.read_bytes())
    body = len(data) - len(checkpoint.COMMENT) - checkpoint.DIGITS - 2
    data[int(where * body)] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"last\.pt: damaged: its checksum is that of other contents"):
        checkpoint.load(path)


def test_a_checkpoint_is_a_zip_file_that_torch_and_others_read(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 5})
    assert torch.load(path, weights_only=True)["step"] == 5
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.comment.startswith(checkpoint.COMMENT)


def test_a_checkpoint_from_before_there_were_checksums_is_read(tmp_path: Path) -> None:
    torch.save({"format": 1, "step": 5}, tmp_path / "last.pt")
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 5


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
