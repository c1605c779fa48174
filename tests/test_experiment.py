"""A run from start to end: its folder, its summary, stopping, resuming, failing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import TINY, train
from lookback import checkpoint, command_line, config, experiment
from lookback.board import Board
from lookback.decode import greedy
from lookback.evaluate import validation_batch
from lookback.train import Trainer

SCRIPT = Path(__file__).parents[1] / "scripts" / "train.py"


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def weights(folder: Path, which: str = "last") -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.load(folder / "checkpoints" / f"{which}.pt")["model"]
    return found


def same_bits(one: Path, two: Path, which: str = "last") -> bool:
    first, second = weights(one, which), weights(two, which)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def losses(folder: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["train/loss"]) for line in lines if "train/loss" in line]


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals = signal.SIGINT) -> None:
    """Send this process a signal in the middle of the update after `step`."""
    advance = Trainer.advance

    def advance_and_stop(self: Trainer, batch_at: Any) -> None:
        if self.step == step:
            os.kill(os.getpid(), number)
        advance(self, batch_at)

    monkeypatch.setattr(Trainer, "advance", advance_and_stop)


def test_the_run_folder_holds_what_the_design_says(tiny_run: Path) -> None:
    names = {path.name for path in tiny_run.iterdir() if "tfevents" not in path.name}
    assert names == {"config.yaml", "metrics.jsonl", "summary.json", "checkpoints", "attention"}
    assert {path.name for path in (tiny_run / "checkpoints").iterdir()} == {"best.pt", "last.pt"}


def test_the_summary_has_every_entry(tiny_run: Path) -> None:
    found = summary(tiny_run)
    assert (found["status"], found["task"], found["model"]) == ("finished", "reverse", "transformer")
    assert (found["seed"], found["steps"]) == (0, 24)
    assert found["parameters"] == sum(tensor.numel() for tensor in weights(tiny_run).values())
    assert found["train_seconds"] > 0
    assert found["tokens_per_second"] > 0
    for name in ("exact_match", "token_accuracy", "teacher_forced_token_accuracy"):
        assert list(found[name]) == ["1", "4", "8", "10"]
        assert all(0 <= value <= 1 for value in found[name].values())


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(tiny_run: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "again") == 0
    assert train(tmp_path / "other", "seed=1") == 0
    assert same_bits(tiny_run, tmp_path / "again")
    assert not same_bits(tiny_run, tmp_path / "other")
    assert losses(tiny_run) == losses(tmp_path / "again")
    for name in ("exact_match", "token_accuracy"):
        assert summary(tiny_run)[name] == summary(tmp_path / "again")[name]


def test_pictures_change_no_bit_of_the_weights(tiny_run: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "dark", "board.images_every=0") == 0
    assert same_bits(tiny_run, tmp_path / "dark")


@pytest.mark.parametrize("step", [13, 21])  # between validations (10, 20, 24) and between savings (7, 14, 21, 24)
def test_ctrl_c_saves_and_resuming_ends_with_the_uninterrupted_bits(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: int
) -> None:
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_at(patch, step - 1)
        assert train(folder) == 130
    assert f"resume={folder}" in capsys.readouterr().out
    assert summary(folder)["status"] == "interrupted"
    assert losses(folder)[-1][0] == step
    torch.manual_seed(12345)
    assert command_line.launch(experiment.run, "train", [f"resume={folder}"]) == 0
    assert same_bits(tiny_run, folder)
    assert same_bits(tiny_run, folder, "best")
    assert losses(folder) == losses(tiny_run)
    for name in ("best_step", "exact_match", "validation"):
        assert summary(folder)[name] == summary(tiny_run)[name]
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    read.Reload()
    assert [point.step for point in read.Scalars("train/loss")] == list(range(1, 25))
    assert [point.step for point in read.Scalars("val/loss")] == [10, 20, 24]
    assert [point.step for point in read.Images("attention/cross/layer0/head0")] == [5, 10, 15, 20, 24]


def test_sigterm_is_143(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 3, signal.SIGTERM)
    assert train(tmp_path / "run") == 143
    assert summary(tmp_path / "run")["reason"] == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_killed_run_goes_on_from_its_last_saving(tiny_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    code = (
        "import os, sys\n"
        "from lookback.train import Trainer\n"
        "from lookback import experiment\n"
        "advance = Trainer.advance\n"
        "def die(self, batch_at):\n"
        "    advance(self, batch_at)\n"
        "    if self.step == 18: os.kill(os.getpid(), 9)\n"
        "Trainer.advance = die\n"
        "sys.exit(experiment.main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *TINY, f"hydra.run.dir={folder}"], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert losses(folder)[-1][0] >= 14
    assert command_line.launch(experiment.run, "train", [f"resume={folder}"]) == 0
    assert same_bits(tiny_run, folder)
    assert losses(folder) == losses(tiny_run)


def test_resuming_a_finished_run_changes_nothing(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*")}
    assert command_line.launch(experiment.run, "train", [f"resume={tiny_run}"]) == 0
    assert "has finished already" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*")} == before


def test_a_run_cannot_be_resumed_to_fewer_steps(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.launch(experiment.run, "train", [f"resume={tiny_run}", "train.steps=9"]) == 2
    assert "train.steps = 9: the run has done 24 already" in capsys.readouterr().err
    assert summary(tiny_run)["status"] == "finished"


def test_the_best_checkpoint_survives_a_resume_that_gets_worse(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder, "model.dropout=0.0", "train.steps=40") == 0
    best, step = (folder / "checkpoints" / "best.pt").read_bytes(), summary(folder)["best_step"]
    worse = [f"resume={folder}", "train.steps=60", "train.learning_rate=3.0"]
    assert command_line.launch(experiment.run, "train", worse) == 0
    assert (folder / "checkpoints" / "best.pt").read_bytes() == best
    assert summary(folder)["best_step"] == step
    assert 0 < step <= 40
    assert summary(folder)["steps"] == 60


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    advance = Trainer.advance

    def poison(self: Trainer, batch_at: Any) -> None:
        if self.step == 16:
            with torch.no_grad():
                self.model.get_parameter("output.weight")[:] = float("inf")
        advance(self, batch_at)

    monkeypatch.setattr(Trainer, "advance", poison)
    folder = tmp_path / "run"
    assert train(folder) == 1
    assert capsys.readouterr().err.startswith("lookback: loss is not finite at step 17: nan")
    assert summary(folder)["status"] == "failed"
    assert "step 17" in summary(folder)["reason"]
    kept = checkpoint.load(folder / "checkpoints" / "last.pt")
    assert kept["trainer"]["step"] == 14
    assert all(bool(tensor.isfinite().all()) for tensor in kept["model"].values())


def test_a_learning_rate_far_too_high_stops_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "train.learning_rate=1e30") == 1
    assert "loss is not finite at step" in capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_does_not_end_the_training(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no fonts")

    monkeypatch.setattr(Board, "attention", fail)
    assert train(tmp_path / "run") == 0
    assert "no picture at step 5: no fonts" in capsys.readouterr().out
    assert same_bits(tiny_run, tmp_path / "run")


def test_an_unexpected_error_is_in_the_summary_and_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(experiment, "validate", fail)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        train(tmp_path / "run")
    assert summary(tmp_path / "run")["status"] == "failed"
    assert summary(tmp_path / "run")["reason"] == "RuntimeError: a fault of ours"


def test_a_run_is_read_back_ready_to_predict_and_has_no_dropout(tiny_run: Path) -> None:
    task, model = experiment.load(tiny_run)
    assert not model.training
    batch = validation_batch(task, [3, 4, 5])
    one, two = (greedy(model, batch.source, batch.source_lengths, 9).tokens for _ in range(2))
    assert torch.equal(one, two)


def test_parameter_names_are_those_of_the_plain_model(tiny_run: Path) -> None:
    _, model = experiment.build(config.build(config.read(tiny_run / "config.yaml")))
    names = set(weights(tiny_run))
    assert names == set(model.state_dict())
    assert not any(name.startswith(("module.", "_orig_mod.")) for name in names)


def test_a_renamed_parameter_is_refused_by_name(tiny_run: Path, tmp_path: Path) -> None:
    content = checkpoint.load(tiny_run / "checkpoints" / "best.pt")
    content["model"]["module.output.weight"] = content["model"].pop("output.weight")
    checkpoint.save(tmp_path / "checkpoints" / "best.pt", content)
    with pytest.raises(
        checkpoint.CheckpointError, match=r"output\.weight is missing; module\.output\.weight is unknown"
    ):
        experiment.load(tmp_path)


def test_a_resume_without_a_checkpoint_is_one_clear_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_bytes((tiny_run / "config.yaml").read_bytes())
    assert command_line.launch(experiment.run, "train", [f"resume={tmp_path}"]) == 1
    assert capsys.readouterr().err.endswith("last.pt: no such checkpoint\n")


def test_an_untrained_model_ends_every_output_at_the_cap(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "train.steps=1") == 0
    assert summary(tmp_path / "run")["strings"]["8"] == 20


def test_class_names_read_as_the_yaml_files_are_named() -> None:
    assert experiment._class_name({"_target_": "lookback.models.rnn.RnnLuong"}) == "rnn_luong"
    assert experiment._class_name({"_target_": "lookback.models.transformer.Transformer"}) == "transformer"
