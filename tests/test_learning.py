"""The defaults learn. Minutes: run by .ci/run and `make test-all`."""

import json
from pathlib import Path

import pytest

from lookback import command_line, experiment

pytestmark = pytest.mark.slow

LENGTHS = ("1", "5", "10", "15", "20")
UNWATCHED = ["board.alignment_every=0", "board.images_every=0", "board.snapshots_every=0"]  # changes no weight


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_the_defaults_reach_exact_match_1_at_every_trained_length(tmp_path: Path, task: str, seed: int) -> None:
    arguments = [f"task={task}", f"seed={seed}", f"hydra.run.dir={tmp_path}/run"]
    if (task, seed) != ("reverse", 0):  # the one that is watched, and evaluated beyond, as by default
        arguments += [*UNWATCHED, f"evaluate.lengths=[{','.join(LENGTHS)}]"]
    assert command_line.launch(experiment.run, "train", arguments) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {length: summary["exact_match"][length] for length in LENGTHS} == dict.fromkeys(LENGTHS, 1.0)
    assert summary["strings"]["20"] == 200
    assert summary["steps"] < 1500
    assert all(summary["cut_off"][length] == 0 for length in ("5", "10", "15", "20"))
    assert summary["peak_memory_mib"] < 1024


@pytest.mark.parametrize(("model", "task"), [("rnn_luong", "copy"), ("rnn_bahdanau", "reverse")])
def test_rnns_with_attention_learn_the_longest_trained_length(tmp_path: Path, model: str, task: str) -> None:
    arguments = [f"task={task}", f"model={model}", f"hydra.run.dir={tmp_path}/run", *UNWATCHED]
    short = ["data.max_length=10", "evaluate.lengths=[10]", "train.steps=400"]  # README has it at length 20
    assert command_line.launch(experiment.run, "train", [*arguments, *short]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["exact_match"]["10"] >= 0.95
    assert summary["cut_off"]["10"] == 0
