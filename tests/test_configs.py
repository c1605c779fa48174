"""The contract of the yaml files: each makes what it says, so that a new file arrives tested."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lookback import command_line, config, experiment

GROUPS = ("task", "model", "model/positions")
ROOT = Path(__file__).parents[1]


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (command_line.CONFIGS / group).glob("*.yaml"))


FILES = [(group, choice) for group in GROUPS for choice in choices(group)]


@pytest.mark.parametrize(("group", "choice"), FILES)
def test_the_first_line_of_a_yaml_names_the_file_of_its_class(group: str, choice: str) -> None:
    text = (command_line.CONFIGS / group / f"{choice}.yaml").read_text(encoding="utf-8")
    first = text.splitlines()[0]
    source = first.rpartition(": ")[2]
    assert first.startswith("# ")
    assert (ROOT / source).is_file()
    module = source.removeprefix("src/").removesuffix(".py").replace("/", ".")
    assert f"_target_: {module}." in text


@pytest.mark.parametrize(("group", "choice"), FILES)
def test_every_choice_trains_a_step_and_decodes(group: str, choice: str) -> None:
    built = config.build(command_line.compose("train", ["experiment=smoke", f"{group}={choice}"]))
    task, model = experiment.build(built)
    length = 5
    source = task.sample(np.random.default_rng(0), length)
    assert len(source) == length
    ids = torch.tensor([[1, *source.tolist(), 2]])
    logits = model(ids, torch.tensor([length + 2]), torch.tensor([[1, 4, 5]]))
    assert logits.shape == (1, 3, len(task.target_vocabulary))
    logits.sum().backward()
    used = [name for name, weights in model.named_parameters() if weights.grad is None]
    assert not used, f"parameters that nothing reaches: {used}"


@pytest.mark.parametrize("experiment_name", choices("experiment"))
@pytest.mark.parametrize("model", choices("model"))
def test_every_experiment_is_valid_with_every_model(experiment_name: str, model: str) -> None:
    raw = command_line.compose("train", [f"experiment={experiment_name}", f"model={model}"])
    assert config.check(raw) == []


def test_the_recommended_training_stays_under_1500_steps_of_batch_64() -> None:
    raw = command_line.compose("train")
    assert raw["train"]["steps"] < 1500
    assert raw["data"] == {"batch_size": 64, "min_length": 1, "max_length": 20}
