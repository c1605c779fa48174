"""A run from start to end: its folder, its summary, stopping, resuming, failing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from conftest import TINY, train
from lookback import (
    album,
    checkpoint,
    command_line,
    config,
    experiment,
    files,
    launcher,
    learner,
    look,
    run_folder,
    session,
)
from lookback.board import Board
from lookback.by_length import LengthScore, evaluate
from lookback.decode import greedy
from lookback.evaluate import Validation, validation_batch
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
    assert names == {"config.yaml", "metrics.jsonl", "summary.json", "checkpoints", "attention", "failures"}
    assert {path.name for path in (tiny_run / "checkpoints").iterdir()} == {
        "best.pt",
        "last.pt",
        "previous.pt",
        "steps",
    }
    assert run_folder.snapshots(tiny_run) == [0, 24]
    assert {path.name for path in (tiny_run / "failures").iterdir()} == {"failures.md", "failures.jsonl"}


def test_weights_of_a_step_are_those_that_the_run_had_there(tiny_run: Path) -> None:
    last = checkpoint.load(run_folder.checkpoint_path(tiny_run, "last"))["model"]
    _, kept = experiment.load(tiny_run, 24)
    assert all(torch.equal(value, last[name]) for name, value in kept.state_dict().items())
    _, first = learner.build(config.build(config.read(tiny_run / "config.yaml")))
    _, kept = experiment.load(tiny_run, 0)
    assert all(torch.equal(value, first.state_dict()[name]) for name, value in kept.state_dict().items())


def test_a_run_from_before_a_setting_of_the_board_was_there_can_be_resumed(tiny_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    stored = config.read(folder / "config.yaml")
    del stored["board"]["alignment_every"], stored["board"]["snapshots_every"]
    OmegaConf.save(OmegaConf.create(stored), folder / "config.yaml")
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=26"]) == 0
    assert config.read(folder / "config.yaml")["board"]["snapshots_every"] == 0


def test_an_interrupted_run_has_its_film_and_last_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, 12)
        assert train(tmp_path / "run") == 130
    assert (tmp_path / "run" / "attention" / "film.png").exists()
    assert (tmp_path / "run" / "attention" / "maps.npz").exists()


def keep_weights(folder: Path, every: int, *steps: int) -> None:
    """As a run does that keeps the weights of every so many steps."""
    told: list[str] = []
    for step in steps:
        content = {"config": {"board": {"snapshots_every": every}}, "model": torch.nn.Linear(2, 3).state_dict()}
        run_folder.keep_weights(folder, step, content, told.append)
    assert told == []


def test_of_very_many_steps_at_most_fifty_evenly_spread_keep_their_weights(tmp_path: Path) -> None:
    keep_weights(tmp_path, 5, *range(0, 250, 5))
    assert run_folder.snapshots(tmp_path) == [*range(0, 250, 5)]
    keep_weights(tmp_path, 5, 250)
    assert run_folder.snapshots(tmp_path) == [*range(0, 251, 10)]
    keep_weights(tmp_path, 5, *range(255, 1013, 5), 1013)  # the last step, which is always kept
    kept = run_folder.snapshots(tmp_path)
    assert 25 <= len(kept) <= 50
    assert (kept[0], kept[-1]) == (0, 1013)
    assert all(later - earlier <= 40 for earlier, later in pairwise(kept))


def test_another_cadence_costs_no_kept_weights_while_there_are_few(tmp_path: Path) -> None:
    keep_weights(tmp_path, 100, *range(0, 1001, 100))
    keep_weights(tmp_path, 7, *range(1001, 1260, 7))
    assert run_folder.snapshots(tmp_path) == [*range(0, 1001, 100), *range(1001, 1260, 7)]
    keep_weights(tmp_path, 7, *range(1260, 1400, 7))
    kept = run_folder.snapshots(tmp_path)
    assert len(kept) <= 50
    assert [step for step in kept if step <= 1000] == [*range(0, 1001, 100)]


def test_files_that_are_named_otherwise_are_no_steps_and_never_in_the_way(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    steps, logged = folder / "checkpoints" / "steps", folder / "attention" / "logged"
    odd = ["99", "000000099", "0000009x", "+0000099", "²²²²²²²²", "١١١١١١١١", "00000098 (copy)"]
    for place, suffix in ((steps, ".pt"), (logged, ".npz")):
        for name in odd:
            (place / f"{name}{suffix}").write_bytes(b"not ours")
        (place / f"00000097{suffix}").mkdir()
    assert run_folder.snapshots(folder) == [0, 24]
    assert list(album.kept(folder / "attention")) == [5, 10, 15, 20, 24]
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=26"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    for place, suffix in ((steps, ".pt"), (logged, ".npz")):
        assert all((place / f"{name}{suffix}").exists() for name in [*odd, "00000097"])


def test_a_later_file_that_cannot_be_removed_is_told_and_the_run_goes_on(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    later = [run_folder.checkpoint_path(folder, 99), folder / "attention" / "logged" / "00000099.npz"]
    for path in later:
        path.write_bytes(b"")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path in later:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=26"]) == 0
    out = capsys.readouterr().out
    for path in later:
        assert f"{path} should go, but cannot be removed: Operation not permitted\n" in out


def test_what_was_kept_after_the_step_that_is_resumed_from_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, 15)
        assert train(folder, "board.snapshots_every=6") == 130
    later = folder / "attention" / "logged" / "00000017.npz"
    for path in (run_folder.checkpoint_path(folder, 17), later):  # of a longer training that was killed
        path.write_bytes(b"")
    assert run_folder.snapshots(folder) == [0, 6, 12, 17]
    assert command_line.launch(experiment.run, "train", [f"resume={folder}"]) == 0
    assert run_folder.snapshots(folder) == [0, 6, 12, 18, 24]
    assert not later.exists()


def test_a_run_full_of_pictures_needs_no_display_and_leaves_pyplot_alone(tmp_path: Path) -> None:
    typed = [*TINY, "train.steps=3", "board.images_every=1", f"hydra.run.dir={tmp_path / 'run'}"]
    code = (
        "import sys, matplotlib\n"
        "before = matplotlib.rcParams._get_backend_or_none()\n"
        "from lookback import command_line, experiment\n"
        f"assert command_line.launch(experiment.run, 'train', {typed!r}) == 0\n"
        "assert matplotlib.rcParams._get_backend_or_none() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {**os.environ, "MPLBACKEND": "TkAgg", "DISPLAY": "localhost:64"}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-W", "error::UserWarning", "-c", code],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"no picture" not in done.stdout
    assert len(list((tmp_path / "run" / "attention" / "logged").iterdir())) == 3


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
    assert "train.steps = 9: must not be fewer than the 24 steps that the run has done" in capsys.readouterr().err
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
    assert "not shown at step 5: no fonts" in capsys.readouterr().out
    assert same_bits(tiny_run, tmp_path / "run")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # TensorBoard's own thread ends so
def test_a_disk_that_is_full_for_what_only_shows_a_training_does_not_end_it(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_whole, full = files.write_whole, "No space left on device"

    def write(path: Path, content: bytes, before: Path | None = None) -> None:
        if path.parent.name == "steps":
            raise OSError(28, full)
        write_whole(path, content, before)

    def record(*_: object) -> None:
        raise OSError(28, full)

    monkeypatch.setattr(checkpoint, "write_whole", write)
    monkeypatch.setattr(RecordWriter, "write", record)
    assert train(tmp_path / "run", "board.snapshots_every=6") == 0
    out, err = capsys.readouterr()
    assert out.count(f"not shown at step 6: [Errno 28] {full}") == 1
    assert err.count("no TensorBoard log") == 1
    assert same_bits(tiny_run, tmp_path / "run")
    assert losses(tiny_run) == losses(tmp_path / "run")


def test_an_unexpected_error_is_in_the_summary_and_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(session, "validate", fail)
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
    _, model = learner.build(config.build(config.read(tiny_run / "config.yaml")))
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


def test_a_killed_run_that_had_saved_nothing_else_starts_from_its_first_weights(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", die)
        assert train(folder) == 130
    assert command_line.launch(experiment.run, "train", [f"resume={folder}"]) == 0
    assert same_bits(tiny_run, folder)


@pytest.mark.parametrize(
    ("setting", "option", "value"), [("weight_decay", "weight_decay", 0.5), ("beta2", "betas", 0.5)]
)
def test_every_setting_of_the_optimizer_typed_on_resume_is_in_effect(
    tmp_path: Path, setting: str, option: str, value: float
) -> None:
    folder = tmp_path / "run"
    assert train(folder, "train.steps=3") == 0
    typed = [f"resume={folder}", "train.steps=5", f"train.{setting}={value}"]
    assert command_line.launch(experiment.run, "train", typed) == 0
    group = checkpoint.load(folder / "checkpoints" / "last.pt")["trainer"]["optimizer"]["param_groups"][0]
    assert group[option] in (value, (0.9, value))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("seed: 0", "seed: 5", "seed"),
        ("reverse.Reverse", "sort.Sort", "task"),
        ("max_length: 8", "max_length: 9", "data"),
    ],
)
def test_weights_of_another_run_are_not_resumed(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, key: str
) -> None:
    folder = copied(tiny_run, tmp_path)
    text = (folder / "config.yaml").read_text()
    assert old in text
    (folder / "config.yaml").write_text(text.replace("reverse.Reverse", "reverse.Reverse").replace(old, new))
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=30"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"lookback: {key} = ")
    assert "differs from that of the checkpoint" in error


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "copy"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", b"a: [1"),
        ("config.yaml", b"- 1\n- 2\n"),
        ("config.yaml", b"\xff\xfe\x00"),
        ("config.yaml", b"a: !!python/object/apply:os.system ['touch hacked']\n"),
        ("config.yaml", b""),
        ("checkpoints/best.pt", b"nothing"),
        ("checkpoints/best.pt", b""),
    ],
)
def test_a_damaged_file_of_a_run_is_named_in_one_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    folder = copied(tiny_run, tmp_path)
    (folder / name).write_bytes(content)
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=30"]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("lookback: ")
    assert len(error.splitlines()) <= 10
    assert not Path("hacked").exists()


@pytest.mark.parametrize("missing", ["model", "trainer"])
def test_a_checkpoint_that_lacks_a_part_is_named_in_one_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    folder = copied(tiny_run, tmp_path)
    content = checkpoint.load(folder / "checkpoints" / "last.pt")
    del content[missing]
    checkpoint.save(folder / "checkpoints" / "last.pt", content)
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=30"]) == 1
    assert f"last.pt: lacks what resuming needs (KeyError: '{missing}')" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("best", {"best": None}),
        ("best", {"best": "seven"}),
        ("best", {"best": {"step": 7, "colour": 1}}),
        ("last", {"model": [1, 2]}),
        (
            "last",
            {"trainer": {"step": 7, "seconds": 1.0, "tokens": 5, "optimizer": {"param_groups": [], "state": {}}}},
        ),
    ],
)
def test_a_checkpoint_with_a_part_of_another_kind_is_named_in_one_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, changes: dict[str, Any]
) -> None:
    folder = copied(tiny_run, tmp_path)
    path = folder / "checkpoints" / f"{name}.pt"
    checkpoint.save(path, checkpoint.load(path) | changes)
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=30"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lookback: {path}: ")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_damaged_summary_is_never_in_the_way(tiny_run: Path, tmp_path: Path, content: bytes) -> None:
    folder = copied(tiny_run, tmp_path)
    (folder / "summary.json").write_bytes(content)
    assert command_line.launch(experiment.run, "train", [f"resume={folder}"]) == 0
    assert summary(folder)["status"] == "finished"


def test_two_processes_never_work_in_one_folder(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tiny_run, tmp_path)
    with files.locked(folder):
        assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=30"]) == 1
    assert "another process is working in this run folder" in capsys.readouterr().err
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=30"]) == 0


def test_ctrl_c_during_the_final_evaluation_stops_and_can_be_resumed(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"

    def stopped(*arguments: Any) -> list[LengthScore]:
        os.kill(os.getpid(), signal.SIGINT)
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(learner, "evaluate", stopped)
        assert train(folder) == 130
    assert f"resume={folder}" in capsys.readouterr().out
    assert summary(folder)["status"] == "interrupted"
    assert command_line.launch(experiment.run, "train", [f"resume={folder}"]) == 0
    assert summary(folder)["exact_match"] == summary(tiny_run)["exact_match"]


def test_a_reader_who_goes_away_does_not_end_the_training(tmp_path: Path) -> None:
    arguments = " ".join([*TINY, f"hydra.run.dir={tmp_path}/run"])
    command = f"{sys.executable} {SCRIPT} {arguments} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.stdout.count(b"\n") == 1
    assert summary(tmp_path / "run")["status"] == "finished"


def test_a_resume_without_a_checkpoint_is_one_clear_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_bytes((tiny_run / "config.yaml").read_bytes())
    assert command_line.launch(experiment.run, "train", [f"resume={tmp_path}"]) == 1
    assert capsys.readouterr().err.endswith("last.pt: no such checkpoint\n")


def test_every_length_is_evaluated_on_as_many_strings_as_asked_for_or_there_are(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "train.steps=1", "evaluate.strings=30") == 0
    assert summary(tmp_path / "run")["strings"] == {"1": 26, "4": 30, "8": 30, "10": 30}


def test_class_names_read_as_the_yaml_files_are_named() -> None:
    assert run_folder.class_name({"_target_": "lookback.models.rnn.RnnLuong"}) == "rnn_luong"
    assert run_folder.class_name({"_target_": "lookback.models.transformer.Transformer"}) == "transformer"


def test_results_are_of_the_best_weights_on_the_test_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[dict[str, torch.Tensor], str]] = []

    def spy(model: Any, task: Any, settings: Any, *rest: Any) -> list[LengthScore]:
        seen.append(({name: tensor.clone() for name, tensor in model.state_dict().items()}, settings.split))
        return evaluate(model, task, settings, *rest)

    monkeypatch.setattr(learner, "evaluate", spy)
    folder = tmp_path / "run"
    assert train(folder, "train.learning_rate=3.0", "train.warmup_steps=24", "train.validate_every=1") == 0
    assert len(seen) == 1
    evaluated = seen[0][0]
    assert seen[0][1] == "test"
    assert summary(folder)["best_step"] < 24
    best, last = weights(folder, "best"), weights(folder, "last")
    assert all(torch.equal(evaluated[name], best[name]) for name in best)
    assert not all(torch.equal(last[name], best[name]) for name in best)


def test_validation_covers_every_trained_length(tiny_run: Path, tmp_path: Path) -> None:
    this = session.Run(config.build(config.read(tiny_run / "config.yaml")), tmp_path, False)
    assert set(this.validation.source_lengths.tolist()) == set(range(1 + 2, 8 + 2 + 1))
    assert len(this.validation.source) == 128


def test_the_speed_is_tokens_learned_from_by_the_seconds_of_training(tiny_run: Path) -> None:
    state = checkpoint.load(tiny_run / "checkpoints" / "last.pt")["trainer"]
    found = summary(tiny_run)
    assert found["tokens_per_second"] == pytest.approx(state["tokens"] / state["seconds"], rel=0.01)
    assert found["train_seconds"] == pytest.approx(state["seconds"], abs=0.001)


def test_a_best_checkpoint_younger_than_the_last_one_stays_the_best_and_the_summary_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    save = checkpoint.save

    def die_after_best(path: Path, content: dict[str, Any], before: Path | None = None) -> None:
        save(path, content, before)
        if path.name == "best.pt" and content["trainer"]["step"] == 20:
            raise KeyboardInterrupt  # between the best of step 20 and the next last, of step 21

    monkeypatch.setattr(Validation, "better_than", lambda new, old: old is None or new.loss < old.loss)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", die_after_best)
        assert train(folder, "model.dropout=0.0") == 130
    assert checkpoint.load(folder / "checkpoints" / "last.pt")["trainer"]["step"] == 14
    worse = [f"resume={folder}", "train.learning_rate=3.0"]
    assert command_line.launch(experiment.run, "train", worse) == 0
    kept = checkpoint.load(folder / "checkpoints" / "best.pt")["best"]
    assert summary(folder)["best_step"] == kept["step"] == 20
    assert summary(folder)["validation"]["loss"] == kept["loss"]


def test_a_finished_run_can_be_evaluated_again_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder) == 0
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "evaluate.lengths=[2,8]"]) == 0
    assert list(summary(folder)["exact_match"]) == ["2", "8"]
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    for length in (1, 2, 8):
        assert [point.step for point in read.Scalars(f"length/{length}/exact_match")] == [24]
    assert [point.step for point in read.Scalars("train/loss")] == list(range(1, 25))


def test_a_run_is_read_back_where_its_device_or_a_setting_is_unknown(tiny_run: Path, tmp_path: Path) -> None:
    content = checkpoint.load(tiny_run / "checkpoints" / "best.pt")
    content["config"]["train"] = {"device": "cuda", "of another version": 1}
    checkpoint.save(tmp_path / "checkpoints" / "best.pt", content)
    before = torch.get_rng_state()
    _, model = experiment.load(tmp_path)
    assert torch.equal(model.get_parameter("output.weight"), content["model"]["output.weight"])
    assert torch.equal(before, torch.get_rng_state())


def test_a_hostile_configuration_in_a_checkpoint_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    content = checkpoint.load(tiny_run / "checkpoints" / "best.pt")
    content["config"]["task"]["_target_"] = "os.system"
    checkpoint.save(tmp_path / "checkpoints" / "best.pt", content)
    with pytest.raises(checkpoint.CheckpointError, match=r"task\._target_ = os\.system: must name a Task inside"):
        experiment.load(tmp_path)


def test_a_run_begins_by_saying_what_is_trained_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "train.steps=3") == 0
    lines = capsys.readouterr().out.splitlines()
    count = sum(tensor.numel() for tensor in weights(tmp_path / "run").values())
    assert lines[0] == f"reverse: transformer, {count:,} parameters"
    assert lines[1] == "steps 1 to 3 of 64 strings, cpu, 1 threads"
    assert lines[2] == f"run folder   {tmp_path}/run"


def test_a_run_that_measures_exact_match_alone_leaves_the_rest_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert train(folder, "evaluate.exact_only=true", "evaluate.symbols=40", "evaluate.lengths=[4,8,10]") == 0
    found = summary(folder)
    assert list(found["exact_match"]) == ["4", "8", "10"]
    assert found["strings"] == {"4": 10, "8": 8, "10": 8}
    assert found["token_accuracy"] == found["teacher_forced_token_accuracy"] == found["cut_off"] == {}
    assert found["beyond"] == {"lengths": 1, "exact_match": found["exact_match"]["10"]}
    assert min(found["decoding_tokens_per_second"].values()) > 0
    shown = capsys.readouterr().out
    assert "teacher" not in shown
    assert "outputs were left at their first wrong token" in shown
    assert "outputs are wrong. Each was left" in (folder / "failures" / "failures.md").read_text()
    tags = [key for line in (folder / "metrics.jsonl").read_text().splitlines() for key in json.loads(line)]
    assert [tag for tag in tags if tag.startswith("length/")] == [f"length/{n}/exact_match" for n in (4, 8, 10)]


def test_of_many_lengths_all_are_in_the_summary_and_twelve_on_the_board(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder, "train.steps=3", "evaluate.lengths=${lengths:2,24}", "evaluate.strings=3") == 0
    assert config.read(folder / "config.yaml")["evaluate"]["lengths"] == list(range(2, 25))
    found = summary(folder)
    assert list(found["exact_match"]) == [str(length) for length in range(2, 25)]
    assert found["beyond"]["lengths"] == 24 - 8
    tags = {key for line in (folder / "metrics.jsonl").read_text().splitlines() for key in json.loads(line)}
    lengths = sorted(int(tag.split("/")[1]) for tag in tags if tag.startswith("length/") and "exact" in tag)
    assert lengths == list(range(2, 25, 2))


def test_a_task_with_a_mark_is_trained_evaluated_resumed_and_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert train(folder, "task=copy_or_reverse", "model/positions=two_ended", "train.steps=6") == 0
    assert command_line.launch(experiment.run, "train", [f"resume={folder}", "train.steps=8"]) == 0
    found = summary(folder)
    assert (found["task"], found["steps"]) == ("copy_or_reverse", 8)
    assert found["strings"] == {"1": 20, "4": 20, "8": 20, "10": 20}
    failures = [json.loads(line) for line in (folder / "failures" / "failures.jsonl").read_text().splitlines()]
    assert {len(one["source"]) - one["length"] for one in failures} == {1}
    assert {len(one["wanted"]) - one["length"] for one in failures} == {0}
    assert look.main([str(folder), "--source", "<abc", "--beside", ">abc"]) == 0
    assert look.main([str(folder), "--ablate", "cross/layer1", "--strings", "3", "--lengths", "4"]) == 0
    capsys.readouterr()
    assert look.main([str(folder), "--source", "abc"]) == 2
    message = "lookback: source must begin with its only mark, > or <, but is 'abc'\n"
    assert capsys.readouterr().err == message


def test_a_program_trains_into_a_folder_that_is_not_there_yet_and_more_than_once(tmp_path: Path) -> None:
    loaded = config.build(launcher.compose("train", [*TINY, "train.steps=2", "board.images_every=0"]))
    for name in ("new/one", "new/two"):
        assert experiment.run(loaded, tmp_path / name, False, quiet=True) == 0
    assert same_bits(tmp_path / "new" / "one", tmp_path / "new" / "two")
