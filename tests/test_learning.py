"""The defaults learn. Minutes: run by .ci/run and `make test-all`."""

import json
from pathlib import Path

import pytest

from lookback import command_line, experiment

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_the_defaults_reach_exact_match_1_at_every_trained_length(tmp_path: Path, task: str, seed: int) -> None:
    arguments = [f"task={task}", f"seed={seed}", f"hydra.run.dir={tmp_path}/run"]
    assert command_line.launch(experiment.run, "train", arguments) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {length: summary["exact_match"][length] for length in ("1", "5", "10", "15", "20")} == {
        "1": 1.0,
        "5": 1.0,
        "10": 1.0,
        "15": 1.0,
        "20": 1.0,
    }
    assert summary["strings"]["20"] == 200
    assert summary["steps"] < 1500
    assert all(summary["cut_off"][length] == 0 for length in ("5", "10", "15", "20"))
    assert summary["peak_memory_mib"] < 1024


@pytest.mark.parametrize(("model", "task"), [("rnn_luong", "copy"), ("rnn_bahdanau", "reverse")])
def test_rnns_with_attention_learn_the_longest_trained_length(tmp_path: Path, model: str, task: str) -> None:
    arguments = [f"task={task}", f"model={model}", "train.steps=750", f"hydra.run.dir={tmp_path}/run"]
    assert command_line.launch(experiment.run, "train", arguments) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["exact_match"]["20"] >= 0.95
    assert summary["cut_off"]["20"] == 0
