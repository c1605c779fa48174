"""On a GPU: training in each precision, moving between devices, and the same outputs as on the CPU."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from conftest import TINY
from lookback import checkpoint, command_line, config, experiment, launcher, learner, results
from lookback.data import train_batch
from lookback.decode import greedy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
MODELS = ["transformer", "rnn", "rnn_luong", "rnn_bahdanau"]


def train(folder: Path, *overrides: str) -> int:
    typed = [*TINY, "train.device=cuda", "board.images_every=0", f"hydra.run.dir={folder}", *overrides]
    return command_line.launch(experiment.run, "train", typed)


def resume(folder: Path, *overrides: str) -> int:
    return command_line.launch(experiment.run, "train", [f"resume={folder}", *overrides])


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("model", MODELS)
def test_each_model_learns_in_each_precision(tmp_path: Path, precision: str, model: str) -> None:
    chosen = [f"model={model}"] if model != "transformer" else []
    typed = [text for text in TINY if not chosen or not text.startswith("model.")]
    folder = tmp_path / "run"
    overrides = [*typed, *chosen, "train.device=cuda", f"train.precision={precision}", "train.steps=60"]
    assert command_line.launch(experiment.run, "train", [*overrides, f"hydra.run.dir={folder}"]) == 0
    found = losses(folder)
    assert len(found) == 60
    assert sum(found[-5:]) < 0.95 * sum(found[:5])
    assert results.read_summary(folder)["machine"]["device"] == "cuda"


def test_the_same_seed_gives_the_same_losses_on_a_gpu(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert train(tmp_path / name) == 0
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-4)


def test_a_run_moves_from_a_gpu_to_the_cpu_and_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder, "train.steps=20") == 0
    assert resume(folder, "train.steps=40", "train.device=cpu") == 0
    assert resume(folder, "train.steps=60", "train.device=cuda") == 0
    found = losses(folder)
    assert len(found) == 60
    assert all(after < 3 * before for before, after in itertools.pairwise(found))
    content = checkpoint.load(folder / "checkpoints" / "last.pt")
    assert content["trainer"]["step"] == 60
    assert content["trainer"]["random_state"].device.type == "cpu"
    assert content["trainer"]["random_state"].dtype == torch.uint8


@pytest.mark.parametrize("model", MODELS)
def test_a_gpu_decodes_what_the_cpu_decodes(model: str) -> None:
    loaded = config.build(launcher.compose("train", ["experiment=smoke", f"model={model}"]))
    task, on_cpu = learner.build(loaded)
    _, on_gpu = learner.build(loaded)
    on_gpu.to("cuda")
    batch = train_batch(task, loaded.data, 0, 0)
    ours = greedy(on_gpu.eval(), batch.source.cuda(), batch.source_lengths.cuda(), 12).tokens.cpu()
    theirs = greedy(on_cpu.eval(), batch.source, batch.source_lengths, 12).tokens
    assert torch.equal(ours, theirs)


def test_float64_on_a_gpu_ends_with_the_weights_of_the_cpu(tmp_path: Path) -> None:
    exact = ["train.precision=float64", "model.dropout=0.0", "train.steps=20"]
    assert train(tmp_path / "gpu", *exact) == 0
    assert train(tmp_path / "cpu", *exact, "train.device=cpu") == 0
    ours, theirs = (
        checkpoint.load(tmp_path / name / "checkpoints" / "last.pt")["model"] for name in ("gpu", "cpu")
    )
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) < 1e-9
