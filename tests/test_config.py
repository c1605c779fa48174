"""Configurations: every problem at once, in words with key, rule, value and nearest name."""

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lookback import config, launcher, schema
from lookback.models.transformer import Transformer
from lookback.positions.sinusoidal import Sinusoidal
from lookback.schema import ConfigError, Problem
from lookback.tasks.reverse import Reverse


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    return launcher.compose("train")


def changed(raw: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with values at keys such as model__d_model changed; ... takes the key away."""
    raw = copy.deepcopy(raw)
    for key, value in changes.items():
        *path, last = key.split("__")
        node = raw
        for name in path:
            node = node[name]
        if value is ...:
            del node[last]
        else:
            node[last] = value
    return raw


def test_the_shipped_configuration_is_built_as_written(composed: dict[str, Any]) -> None:
    built = config.build(composed)
    task, model = built.task(), built.model(30, 31)
    assert isinstance(task, Reverse)
    assert isinstance(model, Transformer)
    assert isinstance(model.encoder_positions, Sinusoidal)
    assert model.output.weight.shape == (31, composed["model"]["d_model"])
    assert built.train.steps == composed["train"]["steps"]
    assert built.raw == composed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model__d_modle": 64}, "model.d_modle = 64: no such key; the nearest is model.d_model"),
        ({"train__stepz": 3}, "train.stepz = 3: no such key; the nearest is train.steps"),
        ({"modle": 3}, "modle = 3: no such key; the nearest is model"),
        ({"positions": 3}, "positions = 3: no such key; the nearest is model/positions"),
        ({"task__zzzz": 3}, "task.zzzz = 3: no such key; there are task.alphabet_size"),
        ({"train__steps": -5}, "train.steps = -5: must be greater than 0"),
        ({"train__steps": 2.5}, "train.steps = 2.5: must be a whole number"),
        ({"train__steps": True}, "train.steps = True: must be a whole number"),
        ({"train__steps": ...}, "train.steps: is missing"),
        ({"train__learning_rate": "fast"}, "train.learning_rate = fast: must be a number"),
        ({"train__learning_rate": float("nan")}, "train.learning_rate = nan: must be a finite number"),
        ({"train__device": "gpu"}, "train.device = gpu: must be 'auto', 'cpu' or 'cuda'"),
        ({"train": 3}, "train = 3: must be a group of settings"),
        ({"train": ...}, "train: is missing"),
        ({"seed": 1e3}, "seed = 1000.0: must be a whole number"),
        ({"seed": -1}, "seed = -1: must be greater than or equal to 0"),
        ({"model__d_model": "sixty"}, "model.d_model = sixty: must be a whole number"),
        ({"model__dropout": 1.0}, "model.dropout = 1.0: must be less than 1"),
        ({"model__norm": "Pre"}, "model.norm = Pre: must be 'pre', 'post' or 'none'"),
        ({"model__num_layers": 0}, "model.num_layers = 0: must be greater than 0"),
        ({"model__positions__bose": 1.0}, "the nearest is model.positions.base"),
        ({"model__positions": 7}, "model.positions = 7: must be a group of settings with a _target_"),
        ({"model__positions": ...}, "model.positions: must be a group of settings with a _target_"),
        ({"evaluate__symbols": 0}, "evaluate.symbols = 0: must be greater than 0"),
        ({"evaluate__exact_only": "yes"}, "evaluate.exact_only = yes: must be true or false"),
        ({"evaluate__lengths": []}, "evaluate.lengths = []: must be a list of at least 1 item"),
        ({"evaluate__lengths": [3, "x"]}, "evaluate.lengths.1 = x: must be a whole number"),
        (
            {"model__d_model": 30},
            "model: d_model must be a multiple of num_heads, but is 30 with num_heads 4",
        ),
        (
            {"data__min_length": 21},
            "data: min_length must not be above max_length, but they are 21 and 20",
        ),
        ({"task__alphabet_size": 63}, "task: alphabet_size must be 1 to 62, but is 63"),
    ],
)
def test_a_problem_is_told_with_key_rule_and_value(
    composed: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config.build(changed(composed, **change))
    assert sentence in str(caught.value)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "lookback.tasks.copy.Copy",
        "lookback.models.base.Seq2Seq",
        "lookback.models.nowhere.Transformer",
        "lookback.models.transformer.Nothing",
        "lookback.models.transformer",
        "lookback.experiment.main",
        3,
    ],
)
def test_only_a_model_of_lookback_can_be_a_model(composed: dict[str, Any], target: object) -> None:
    problems = config.check(changed(composed, model___target_=target))
    assert problems == [Problem("model._target_", "must name a Seq2Seq inside lookback", target)]


def test_a_position_encoding_must_be_one(composed: dict[str, Any]) -> None:
    problems = config.check(changed(composed, model__positions___target_="lookback.tasks.copy.Copy"))
    assert [problem.key for problem in problems] == ["model.positions._target_"]


def test_all_problems_are_told_at_once(composed: dict[str, Any]) -> None:
    change = {"model__d_modle": 64, "train__steps": -5, "data__batch_size": "many", "seed": "one", "extra": 1}
    with pytest.raises(ConfigError) as caught:
        config.build(changed(composed, **change))
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 problems in the configuration:"
    keys = {line.split(" = ")[0].strip() for line in lines[1:]}
    assert keys == {"model.d_modle", "train.steps", "data.batch_size", "seed", "extra"}


def test_lengths_that_learned_positions_do_not_reach_are_named() -> None:
    raw = launcher.compose("train", ["model/positions=learned", "model.positions.max_length=22"])
    problems = config.check(changed(raw, evaluate__lengths=[5, 21]))
    assert [str(problem) for problem in problems] == [
        "evaluate.lengths = 21: must not be above 20: model.positions.max_length is 22, "
        "and BOS and EOS take two places"
    ]


@pytest.mark.parametrize(("task", "most", "needed"), [("duplicate", 10, 23), ("copy_or_reverse", 19, 23)])
def test_places_are_counted_in_sources_and_targets_as_the_task_makes_them(
    task: str, most: int, needed: int
) -> None:
    common = ["model/positions=learned", "model.positions.max_length=22", "board.probe_lengths=[3]"]
    raw = launcher.compose("train", [*common, f"task={task}", "data.max_length=5"])
    assert config.check(changed(raw, evaluate__lengths=[5, most])) == []
    problems = config.check(changed(raw, evaluate__lengths=[5, most + 1]))
    assert [str(problem) for problem in problems] == [
        f"evaluate.lengths = {most + 1}: model.positions.max_length is 22, "
        f"and strings of this length need {needed} in this task"
    ]


def test_a_configuration_from_before_a_setting_is_read_as_things_were(
    composed: dict[str, Any], tmp_path: Path
) -> None:
    config.build(composed).save(tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    lines = [line for line in text.splitlines() if line.strip() not in ("symbols: null", "exact_only: false")]
    assert len(lines) == len(text.splitlines()) - 2
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    found = config.read(tmp_path / "config.yaml")
    assert found == composed
    assert (found["evaluate"]["symbols"], found["evaluate"]["exact_only"]) == (None, False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_where_there_is_none_is_told(composed: dict[str, Any]) -> None:
    problems = config.check(changed(composed, train__device="cuda"))
    assert [str(problem) for problem in problems] == ["train.device = cuda: this machine has no CUDA device"]


def test_checking_leaves_the_random_state_as_it_was(composed: dict[str, Any]) -> None:
    before = torch.get_rng_state()
    config.check(composed)
    assert torch.equal(before, torch.get_rng_state())


def test_what_was_saved_is_read_back(composed: dict[str, Any], tmp_path: Path) -> None:
    config.build(composed).save(tmp_path / "config.yaml")
    assert config.read(tmp_path / "config.yaml") == composed


def test_a_failed_write_leaves_the_old_configuration(
    composed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    config.build(composed).save(path)

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        config.build(changed(composed, seed=9)).save(path)
    assert config.read(path) == composed
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]


NUMBERS = [
    f"{node}.{name}"
    for node, kind in config.CLOSED.items()
    for name, hint in schema.keywords(kind).items()
    if any(part in str(hint) for part in ("int", "float"))
]


@pytest.mark.parametrize(
    "key", [*NUMBERS, "model.d_model", "model.d_ff", "task.alphabet_size", "model.positions.base"]
)
@pytest.mark.parametrize("value", [-1, 0, 10**32, float("inf")])
def test_every_number_has_a_range_and_is_refused_or_built(composed: dict[str, Any], key: str, value: float) -> None:
    raw = changed(composed, **{key.replace(".", "__"): [value] if "lengths" in key else value})
    problems = config.check(raw)
    assert all(problem.key.startswith(key.partition(".")[0]) for problem in problems)
    if value in (-1, float("inf")) or (value == 10**32 and composed_type(composed, key) is int):
        assert problems
    elif not problems:
        config.build(raw)


def composed_type(raw: Any, key: str) -> type:
    for name in key.split("."):
        raw = raw[name]
    return type(raw[0] if isinstance(raw, list) else raw)


def test_a_whole_number_where_a_fraction_is_meant_becomes_one(composed: dict[str, Any]) -> None:
    built = config.build(changed(composed, train__beta2=0, model__dropout=0))
    assert isinstance(built.train.beta2, float)
    assert isinstance(built.model.keywords["dropout"], float)  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["steps", "batch_size", "d_model"])
def test_the_nearest_name_is_one_with_the_same_last_part(composed: dict[str, Any], key: str) -> None:
    [problem] = config.check(changed(composed, **{key: 5}))
    assert problem.rule.endswith(f".{key}")
