"""The contract of the yaml files: each makes what it says, so that a new file arrives tested."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import pairs_files
from lookback import comparison, config, launcher, learner
from lookback.attention import Maps
from lookback.data import train_batch
from lookback.groups import flat
from lookback.train import Trainer

GROUPS = ("task", "model", "model/positions")
ROOT = Path(__file__).parents[1]


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (launcher.CONFIGS / group).glob("*.yaml"))


FILES = [(group, choice) for group in GROUPS for choice in choices(group)]


@pytest.mark.parametrize(("group", "choice"), FILES)
def test_the_first_line_of_a_yaml_names_the_file_of_its_class(group: str, choice: str) -> None:
    text = (launcher.CONFIGS / group / f"{choice}.yaml").read_text(encoding="utf-8")
    first = text.splitlines()[0]
    source = first.rpartition(": ")[2]
    assert first.startswith("# ")
    assert (ROOT / source).is_file()
    module = source.removeprefix("src/").removesuffix(".py").replace("/", ".")
    assert f"_target_: {module}." in text


@pytest.mark.parametrize(("group", "choice"), FILES)
def test_every_choice_predicts_and_reaches_all_its_parameters(group: str, choice: str, tmp_path: Path) -> None:
    more = pairs_files(tmp_path) if choice == "pairs" else []
    built = config.build(launcher.compose("train", ["experiment=smoke", f"{group}={choice}", *more]))
    task, model = learner.build(built)
    length = 5
    [(source, _)] = task.probe_pairs([length])
    ids = torch.tensor([[1, *source.tolist(), 2]])
    assert ids.shape[1] == task.places(length)[0]
    logits = model(ids, torch.tensor([ids.shape[1]]), torch.tensor([[1, 4, 5]]))
    assert logits.shape == (1, 3, len(task.target_vocabulary))
    logits.sum().backward()
    used = [name for name, weights in model.named_parameters() if weights.grad is None]
    assert not used, f"parameters that nothing reaches: {used}"


def is_for_comparing(name: str) -> bool:
    text = (launcher.CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    return "scripts/compare.py" in text


COMPARISONS = [name for name in choices("experiment") if is_for_comparing(name)]


@pytest.mark.parametrize("name", [name for name in choices("experiment") if name not in COMPARISONS])
@pytest.mark.parametrize("model", choices("model"))
def test_every_experiment_is_valid_with_every_model(name: str, model: str) -> None:
    raw = launcher.compose("train", [f"experiment={name}", f"model={model}"])
    assert config.check(raw) == []


@pytest.mark.parametrize("name", [*COMPARISONS, "smoke"])
def test_every_experiment_for_comparing_is_a_sound_plan(name: str, tmp_path: Path) -> None:
    files = pairs_files(tmp_path) if name in ("g2p", "g2p_medium", "scan") else []
    files = [text for text in files if name != "scan" or not text.startswith("task.valid")]
    typed = launcher.Typed("compare", (f"experiment={name}", *files))
    plan = comparison.plan(typed.compose(), typed)
    assert len(plan.entries) >= (1 if name.startswith("claim_") else 2)  # a claim may be of one model
    assert plan.settings.seeds


def planned(name: str) -> dict[str, dict[str, Any]]:
    """Entry of an experiment -> its configuration, flat."""
    typed = launcher.Typed("compare", (f"experiment={name}",))
    return {entry.name: flat(entry.raw) for entry in comparison.plan(typed.compose(), typed).entries}


@pytest.mark.parametrize("name", ["far", "far_both", "far_ablations", "far_encodings"])
def test_what_reaches_far_is_trained_on_20_and_tested_on_10000_by_exact_match_alone(name: str) -> None:
    for raw in planned(name).values():
        assert (raw["data.max_length"], raw["evaluate.lengths"][0], raw["evaluate.lengths"][-1]) == (20, 20, 10_000)
        assert (raw["evaluate.exact_only"], raw["evaluate.symbols"], raw["evaluate.strings"]) == (True, 20_000, 200)


def test_each_ablation_differs_from_all_parts_in_what_its_name_says() -> None:
    entries = planned("far_ablations")
    whole = entries.pop("all_parts")
    assert whole == planned("far")["reverse"]
    changes = {name: {key for key in raw if raw[key] != whole[key]} for name, raw in entries.items()}
    gain, clip = "model.positions.gain", "model.positions.clip"
    assert changes == {
        "no_log_length": {"model.log_length"},
        "gain_1": {gain},
        "clip_16": {clip},
        "gain_1_clip_16": {gain, clip},
        "from_start_only": {"model.positions.addresses"},
        "post_norm": {"model.norm"},
    }


def test_every_encoding_is_compared_and_nothing_else_differs_but_steps() -> None:
    entries = planned("far_encodings")
    assert sorted(entries) == choices("model/positions")
    differing = {key for raw in entries.values() for key in raw if raw[key] != entries["sinusoidal"].get(key)}
    assert {key for key in differing if not key.startswith("model.positions.")} == {"train.steps"}


def test_the_string_tasks_are_tested_on_each_length_from_41_to_500() -> None:
    for raw in planned("chomsky").values():
        lengths = [length for length in raw["evaluate.lengths"] if length > raw["data.max_length"]]
        assert lengths == list(range(41, 501))
        assert not raw["evaluate.exact_only"]
        assert raw["task.alphabet_size"] == (5 if raw["task._target_"].endswith(".Sort") else 2)


@pytest.mark.parametrize("choice", choices("tuned"))
def test_what_was_tuned_belongs_to_a_model_and_is_what_the_sweep_found_best(choice: str) -> None:
    assert choice in choices("model")
    raw = launcher.compose("train", [f"model={choice}"])
    with (ROOT / "runs/reference/tune/results.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == choice and row["status"] == "finished"]
    losses = {float(row["learning_rate"]): float(row["validation_loss"]) for row in rows}
    assert len(losses) == len(rows) >= 4
    assert raw["train"]["learning_rate"] == min(losses, key=losses.__getitem__)
    assert min(losses) < raw["train"]["learning_rate"] < max(losses), "the best must lie inside the grid"


def test_the_recommended_training_stays_under_1500_steps_of_batch_64() -> None:
    raw = launcher.compose("train")
    assert raw["train"]["steps"] < 1500
    assert raw["data"] == {"batch_size": 64, "min_length": 1, "max_length": 20}


@pytest.mark.parametrize("choice", choices("model"))
def test_every_model_decodes_step_by_step_as_in_one_pass_whatever_stands_beside_a_row(choice: str) -> None:
    built = config.build(launcher.compose("train", [f"model={choice}"]))
    _, model = learner.build(built)
    model.eval()
    source = torch.randint(4, 30, (3, 7))
    lengths, target = torch.tensor([7, 2, 5]), torch.randint(4, 30, (3, 6))
    with torch.no_grad():
        full = model(source, lengths, target)
        state = model.start(model.encode(source, lengths), 6)
        steps = torch.stack([model.step(target[:, place], state) for place in range(6)], dim=1)
        alone = model(source[1:2, :2], lengths[1:2], target[1:2])
    torch.testing.assert_close(steps, full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(alone[0], full[1], rtol=1e-4, atol=1e-4)


MIXED = [
    *([f"model={choice}"] for choice in choices("model")),
    *([f"model/positions={choice}", "model.log_length=true"] for choice in choices("model/positions")),
    ["model/positions=two_ended", "model.positions.gated=true"],
    ["model/positions=two_ended", "model.positions.gated=true", "model.log_length=true"],
]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("changes", MIXED, ids=" ".join)
def test_everything_trains_in_half_precision_nearly_as_in_float32(changes: list[str], precision: str) -> None:
    losses = []
    for chosen in ("float32", precision):
        overrides = ["experiment=smoke", *changes, f"train.precision={chosen}"]
        built = config.build(launcher.compose("train", overrides))
        task, model = learner.build(built)
        trainer = Trainer(model, built.train)
        batches = [train_batch(task, built.data, 0, step) for step in range(2)]
        for _ in batches:
            trainer.advance(batches.__getitem__)
        losses.append([record.loss for record in trainer.drain()])
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.parametrize("choice", choices("model"))
def test_every_map_of_every_model_is_named_hides_pads_and_sums_to_one(choice: str) -> None:
    built = config.build(launcher.compose("train", [f"model={choice}"]))
    _, model = learner.build(built)
    maps: Maps = {}
    lengths = torch.tensor([7, 2, 5])
    source, target = torch.randint(4, 30, (3, 7)), torch.randint(4, 30, (3, 6))
    logits = model(source, lengths, target, maps)
    torch.testing.assert_close(logits, model(source, lengths, target), rtol=1e-5, atol=1e-5)
    for place, weights in maps.items():
        kind, layer = place.split("/")
        assert kind in ("encoder_self", "decoder_self", "cross")
        assert layer.startswith("layer")
        assert weights.dim() == 4
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]), rtol=1e-5, atol=1e-5)
        if kind != "decoder_self":
            assert not weights[1, :, :, 2:].any()
