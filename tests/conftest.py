"""Shared fixtures: a run of seconds, made once."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from lookback import command_line, config, experiment, launcher
from lookback.run_folder import class_name

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


def pairs_files(folder: Path) -> list[str]:
    """Write files of words and their letters backwards; what task=pairs must be told beside experiment=smoke."""
    words = ["cat", "actor", "tact", "taco", "oat", "coat", "carrot", "roar", "act", "orca", "cocoa", "tarot"]
    for name, chosen in (("train", words[:9]), ("valid", words[9:])):
        text = "".join(f"{word}\t{' '.join(reversed(word))}\n" for word in chosen)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    paths = [f"task.{name}={folder / name}.tsv" for name in ("train", "valid")]
    return [*paths, "task.target_unit=word", "evaluate.lengths=null", "evaluate.strings=null"]


@cache
def _composed(choices: tuple[str, ...]) -> dict[str, Any]:
    return launcher.compose("train", ["experiment=smoke", *choices])


def write_run(
    folder: Path,
    *overrides: str,
    seed: int = 0,
    exact_match: Mapping[int, float] | None = None,
    validations: Sequence[tuple[int, float, float]] = (),
    **changes: Any,
) -> Path:
    """Write the folder of a finished run, but for its weights; nothing is trained.

    Args:
        folder: of the run.
        overrides: of configs/train.yaml, beside experiment=smoke.
        seed: of the run.
        exact_match: length -> score; lengths up to 8 were trained.
        validations: step, exact match at the longest trained length, seconds of training.
        changes: to its summary.json.
    """
    choices = tuple(text for text in overrides if "." not in text.partition("=")[0])
    settings = OmegaConf.from_dotlist([text for text in overrides if text not in choices])
    node = OmegaConf.merge(_composed(choices), settings, {"seed": seed})  # composing takes longer
    raw = launcher.plain(DictConfig(node))
    scores = {1: 1.0, 4: 0.75, 8: 0.5, 10: 0.25} if exact_match is None else exact_match
    summary = {
        "status": "finished",
        "reason": "",
        "task": class_name(raw["task"]),
        "model": class_name(raw["model"]),
        "parameters": 7160,
        "seed": seed,
        "steps": raw["train"]["steps"],
        "best_step": 40,
        "tokens": 2081,
        "sequential_steps": 19,
        "state_numbers": None,
        "train_seconds": 2.5,
        "tokens_per_second": 832.4,
        "peak_memory_mib": 439.5,
        "split": "test",
        "exact_match": {str(length): value for length, value in scores.items()},
        "token_accuracy": {str(length): (1 + value) / 2 for length, value in scores.items()},
        "decoding_tokens_per_second": {str(length): 100.0 + length for length in scores},
        "code_version": "0c0de0",
        "config_digest": config.digest(raw),
        "data_digest": f"da7a{seed}",
        "machine": {"processor": "abacus", "threads": 1, "device": "cpu", "torch": "2.9", "python": "3.12"},
        "validation": {"loss": 0.375, "token_accuracy": 0.875, "exact_match": 0.625},
        **changes,
    }
    lines: list[dict[str, float]] = [{"step": 1, "train/loss": 3.25}]
    for step, score, seconds in validations:
        lines.append({"step": step, "val/loss": 0.375, "val/exact_match": 0.625})
        lines.append({"step": step, "val/longest_exact_match": score, "train/seconds": seconds})
    folder.mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(raw), folder / "config.yaml")
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


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
