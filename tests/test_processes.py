"""Several processes that train one model: what each has of a batch, and torchrun from start to end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, pairs_files
from lookback import checkpoint, command_line, compare, comparison, config, experiment, launcher, processes, results
from lookback.by_length import evaluate
from lookback.data import Batch
from lookback.learner import Learner, build
from lookback.processes import LostProcessError, Processes
from lookback.tokens import PAD
from lookback.train import seed_dropout
from test_experiment import stop_at

SCRIPT = Path(__file__).parents[1] / "scripts" / "train.py"
EXACT = [*TINY, "train.precision=float64", "model.dropout=0.0", "train.steps=50"]


# ------------------------------------------------------------------------------------------- shares, in one process


def test_a_share_is_every_so_manieth_row_and_no_wider_than_it_must_be() -> None:
    source = torch.tensor([[1, 5, 2, 0, 0], [1, 5, 6, 7, 2], [1, 5, 6, 2, 0], [1, 8, 2, 0, 0], [1, 9, 2, 0, 0]])
    target = torch.tensor([[1, 5, 6, 2], [1, 5, 2, 0], [1, 2, 0, 0], [1, 4, 2, 0], [1, 2, 0, 0]])
    batch = Batch(source, torch.tensor([3, 5, 4, 3, 3]), target)
    first, second, third = (batch.share(rank, 3) for rank in range(3))
    assert first.source.tolist() == [[1, 5, 2], [1, 8, 2]]
    assert first.target.tolist() == [[1, 5, 6, 2], [1, 4, 2, 0]]
    assert second.source.tolist() == [[1, 5, 6, 7, 2], [1, 9, 2, 0, 0]]
    assert second.source_lengths.tolist() == [5, 3]
    assert second.target.tolist() == [[1, 5, 2], [1, 2, 0]]
    assert third.target.tolist() == [[1, 2]]
    assert len(batch.share(5, 6).source) == 0


def learner_of(*overrides: str) -> Learner:
    return Learner(config.build(launcher.compose("train", [*EXACT, *overrides])))


@pytest.mark.parametrize("model", ["transformer", "rnn_bahdanau"])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_gradients_and_losses_of_all_shares_add_up_to_those_of_the_batch(model: str, count: int) -> None:
    chosen = [] if model == "transformer" else [f"model={model}"]
    typed = [text for text in EXACT if not chosen or not text.startswith("model.")] + chosen
    learner = Learner(config.build(launcher.compose("train", [*typed, "model.dropout=0.0"])))
    trainer, batch = learner.trainer, learner._batch(0)
    batch = Batch(batch.source[:5], batch.source_lengths[:5], batch.target[:5])  # seven processes: two have none
    trainer.model.train()

    def found(rank: int, of: int) -> tuple[torch.Tensor, float, list[int]]:
        trainer.processes = Processes(rank, of)
        loss, hits, tokens = trainer._learn(batch) if of == 1 else trainer._learn_share(batch)
        trainer.weights.backward(loss)
        assert trainer.weights.vector.grad is not None
        return trainer.weights.vector.grad.clone(), float(loss.detach()), [int(hits), int(tokens)]

    whole, loss, counts = found(0, 1)
    parts = [found(rank, count) for rank in range(count)]
    torch.testing.assert_close(torch.stack([part[0] for part in parts]).sum(dim=0), whole, atol=1e-14, rtol=1e-10)
    assert sum(part[1] for part in parts) == pytest.approx(loss, rel=1e-12)
    assert [sum(part[2][at] for part in parts) for at in (0, 1)] == counts
    assert counts[1] == int((batch.labels != PAD).sum())


def test_what_is_dropped_depends_on_seed_step_and_rank_but_never_in_the_first_process() -> None:
    def drawn(*arguments: int) -> float:
        torch.manual_seed(1)
        seed_dropout(*arguments)
        return float(torch.rand(()))

    alone = drawn(0, 0, 0)
    assert drawn(3, 5, 0) == alone
    others = [drawn(3, 5, 1), drawn(3, 5, 2), drawn(3, 6, 1), drawn(4, 5, 1)]
    assert len({alone, *others}) == 5
    assert drawn(3, 5, 1) == others[0]


@dataclass
class Pretended(Processes):
    """One of several processes, of which the others are told what they have."""

    others: list[Any] = field(default_factory=list)

    def gather(self, value: Any) -> list[Any]:
        self.others.append(value)
        return self.others


def test_each_string_is_evaluated_by_one_process_and_all_scores_are_those_of_one_alone() -> None:
    learner = learner_of()
    settings = replace(learner.config.evaluate, lengths=[3, 10, 5], strings=90)
    parts: list[Any] = []
    scores = [
        evaluate(learner.model, learner.task, settings, processes=Pretended(r, 3, others=parts)) for r in (0, 1, 2)
    ]
    numbers = [set(part) for part in parts]
    assert sorted(number for part in numbers for number in part) == list(range(270))
    assert all(numbers)
    alone = evaluate(learner.model, learner.task, settings)
    assert [replace(row, tokens_per_second=0.0) for row in scores[-1]] == [
        replace(row, tokens_per_second=0.0) for row in alone
    ]


def test_a_process_that_is_gone_is_one_error_and_later_work_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1\nand a trace")

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    both = Processes(0, 2)
    with pytest.raises(
        LostProcessError, match=r"^another process is gone \(Connection closed by peer \[127.0.0.1\]:1\)$"
    ):
        both.any(False)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda *_, **__: None)
    with pytest.raises(OSError, match="disk"), both.leading("work"):
        raise OSError("disk")
    with pytest.raises(LostProcessError, match="ended with an earlier run"), both.leading("more work"):
        pass


def test_a_program_that_starts_its_own_jobs_is_not_for_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes.started() == 2
    assert command_line.launch(compare.run, "compare", [], comparison.plan) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == "lookback: torchrun = 2: is for train.py: this program starts its jobs itself"


# --------------------------------------------------------------------------------------------------------- torchrun


def torchrun(*arguments: str, count: int = 2) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={count}", str(SCRIPT), *arguments]


def together(*arguments: str, count: int = 2) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        torchrun(*arguments, count=count), capture_output=True, text=True, check=False, timeout=200
    )


def worker(torchrun_process: int, rank: int) -> int:
    """The process of a rank, once there is one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == torchrun_process and f"RANK={rank}".encode() in (
                    folder / "environ"
                ).read_bytes().split(b"\0"):
                    return int(folder.name)
            except (OSError, ValueError):
                continue
        time.sleep(0.05)
    raise AssertionError("no such process")


def weights(folder: Path, which: str = "last") -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.load(folder / "checkpoints" / f"{which}.pt")["model"]
    return found


def distance(one: Path, other: Path) -> float:
    """The largest difference of any weight."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def losses(folder: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["train/loss"] for line in lines if "train/loss" in line}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 50 steps in one process, in 64 bits: roundings are too small to be made large by AdamW."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert command_line.launch(experiment.run, "train", [*EXACT, f"hydra.run.dir={folder}"]) == 0
    return folder


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(alone: Path, tmp_path: Path) -> None:
    done = together(*EXACT, f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run"
    assert distance(alone, folder) < 1e-9
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-9)
    assert len(losses(folder)) == 50
    ours, theirs = results.read_summary(folder), results.read_summary(alone)
    for name in ("exact_match", "token_accuracy", "strings", "tokens", "best_step", "steps", "seed", "status"):
        assert ours[name] == theirs[name]
    assert ours["machine"]["processes"] == 2
    assert theirs["machine"]["processes"] == 1
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert done.stdout.count("run folder") == 2  # told at the start and at the end, by one process
    assert "1 threads in each of 2 processes" in done.stdout


@pytest.mark.slow
def test_the_command_without_a_folder_makes_one(tmp_path: Path) -> None:
    done = subprocess.run(
        torchrun(*EXACT, "train.steps=3", "board.images_every=0"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs" / "reverse" / "transformer").iterdir()
    assert results.read_summary(folder)["status"] == "finished"


@pytest.mark.slow
def test_a_sweep_in_two_processes_trains_one_run_after_another(tmp_path: Path) -> None:
    done = together("-m", *TINY, "seed=3,4", "board.images_every=0", f"hydra.sweep.dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert [results.read_summary(tmp_path / name)["seed"] for name in ("0", "1")] == [3, 4]


@pytest.mark.slow
def test_pairs_that_do_not_divide_evenly_are_all_learned_from_in_an_order_that_changes(tmp_path: Path) -> None:
    typed = ["task=pairs", *TINY, *pairs_files(tmp_path), "train.steps=null", "train.epochs=3", "data.batch_size=4"]
    done = together(*typed, "board.images_every=0", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert results.read_summary(tmp_path / "run")["steps"] == 9  # nine pairs are batches of 4, 4 and 1


def begun(folder: Path, *arguments: str, steps: int) -> "subprocess.Popen[str]":
    """Start two processes, and wait until they have done some steps."""
    process = subprocess.Popen(torchrun(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while results.steps_done(folder) < steps:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


LONG = [*EXACT, "train.steps=200", "board.images_every=0", "train.save_every=20", "model.dropout=0.5"]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A longer run with dropout, in two processes."""
    folder = tmp_path_factory.mktemp("long") / "run"
    done = together(*LONG, f"hydra.run.dir={folder}")
    assert done.returncode == 0, done.stderr
    return folder


def interrupt(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)


def terminate_the_second(process: "subprocess.Popen[str]") -> None:
    os.kill(worker(process.pid, 1), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [interrupt, terminate_the_second])
def test_a_signal_saves_and_resuming_ends_with_the_same_bits(
    long: Path, tmp_path: Path, stop: Callable[[Any], None]
) -> None:
    folder = tmp_path / "run"
    process = begun(folder, *LONG, f"hydra.run.dir={folder}", steps=40)
    stop(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert results.read_summary(folder)["status"] == "interrupted", err
    assert f"resume={folder}" in out
    done = together(f"resume={folder}")
    assert done.returncode == 0, done.stderr
    assert distance(long, folder) == 0
    assert losses(folder) == losses(long)


@pytest.mark.slow
@pytest.mark.parametrize(("dead", "count"), [(0, 3), (1, 1)])
def test_a_dead_process_ends_the_job_and_others_go_on_from_its_last_saving(
    tmp_path: Path, dead: int, count: int
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    typed = [*LONG, "model.dropout=0.0"]
    process = begun(folder, *typed, f"hydra.run.dir={folder}", steps=60)
    os.kill(worker(process.pid, dead), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    if dead == 1:
        assert "lookback: another process is gone" in err
        assert results.read_summary(folder)["status"] == "failed"
    assert run_on(folder, count) == 0
    assert command_line.launch(experiment.run, "train", [*typed, f"hydra.run.dir={whole}"]) == 0
    assert distance(whole, folder) < 1e-5
    assert losses(folder) == pytest.approx(losses(whole), rel=1e-6)


def run_on(folder: Path, count: int) -> int:
    """Go on with a run, in so many processes."""
    if count == 1:
        return command_line.launch(experiment.run, "train", [f"resume={folder}"])
    return together(f"resume={folder}", count=count).returncode


@pytest.mark.slow
def test_a_run_of_one_process_goes_on_in_two(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, 20)
        assert command_line.launch(experiment.run, "train", [*EXACT, f"hydra.run.dir={folder}"]) == 130
    assert run_on(folder, 2) == 0
    assert distance(alone, folder) < 1e-9


@pytest.mark.slow
def test_a_wrong_command_line_is_one_line_and_leaves_no_folder(tmp_path: Path) -> None:
    done = together(*TINY, "train.stepz=3", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if line.startswith("lookback: ")] == [
        "lookback: train.stepz = 3: no such key; the nearest is train.steps"
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_the_same_in_every_process() -> None:
    loaded = config.build(launcher.compose("train", EXACT))
    first, second = (build(loaded)[1].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_jobs_in_other_processes_are_no_job_for_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    typed = ["-m", *TINY, "seed=1,2", "hydra/launcher=joblib", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    assert command_line.launch(experiment.run, "train", typed) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == "lookback: hydra/launcher: must be basic where torchrun starts the processes"
    assert list(tmp_path.iterdir()) == []
