"""Shared fixtures: a run of seconds, made once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lookback import command_line, experiment

torch.set_num_threads(1)  # models here are tiny; and bits depend on the number of threads
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

TINY = [
    "experiment=smoke",
    "train.steps=24",
    "train.validate_every=10",
    "train.save_every=7",
    "board.images_every=5",
    "board.probe_lengths=[3,5]",
    "model.d_model=12",
    "model.num_heads=3",
    "model.num_layers=2",
    "model.d_ff=20",
    "model.dropout=0.5",
]


def train(folder: Path, *overrides: str) -> int:
    """Run the command line in this process."""
    return command_line.launch(experiment.run, "train", [*TINY, f"hydra.run.dir={folder}", *overrides])


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with dropout 0.5."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert train(folder) == 0
    return folder


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Each test starts from one random state and leaves grad mode as it was."""
    torch.manual_seed(7)
    yield
    assert torch.is_grad_enabled()
