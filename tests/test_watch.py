"""Following jobs by what they leave in their folders."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from conftest import write_run
from lookback import results, watch
from lookback.schema import ConfigError
from lookback.scoreboard import ComparisonProgress
from lookback.stop import Stop
from lookback.watch import Watch, Watched


class Recorder(ComparisonProgress):
    """Remembers what would be shown."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True), 3, 150)
        self.updates: list[tuple[int, str]] = []
        self.endings: list[str] = []

    def update(self, steps: int, text: str) -> None:
        self.updates.append((steps, text))

    def ended(self, text: str) -> None:
        self.endings.append(text)


def change(folder: Path, status: str, steps: int = 0) -> None:
    """What a run leaves when it is so far."""
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "status": status, "reason": "disk"}))
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {step}}}\n' for step in range(1, steps + 1)))


def test_jobs_are_followed_from_nothing_to_their_end(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    jobs = [Watched(f"model{seed}", seed, folder, 50) for seed, folder in enumerate(folders, start=3)]
    record = Recorder()
    follower = Watch(jobs, record, Stop(), tmp_path / "stop")
    follower.look()
    assert record.updates[-1] == (0, "")
    for seed, folder in enumerate(folders[:2], start=3):
        write_run(folder, seed=seed)
    change(folders[0], "running", steps=20)
    change(folders[1], "running", steps=7)
    follower.look()
    assert record.updates[-1] == (27, "model3 seed 3, model4 seed 4")
    assert record.endings == []
    change(folders[0], "finished", steps=50)
    change(folders[1], "failed", steps=9)
    write_run(folders[2])
    change(folders[2], "running", steps=11)
    for _ in range(2):  # each ending is told once
        follower.look()
        assert record.updates[-1] == (111, "model5 seed 5")
        assert record.endings == [
            "model3 seed 3: exact match 0.500 at length 8, 2 s of training",
            "model4 seed 4: failed: disk",
        ]
    change(folders[2], "interrupted", steps=12)
    follower.look()
    assert record.updates[-1] == (100, "")
    assert len(record.endings) == 2


def test_what_an_earlier_job_has_left_is_not_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", seed=3)
    change(folder, "failed", steps=9)
    record = Recorder()
    follower = Watch([Watched("x", 3, folder, 50)], record, Stop(), tmp_path / "stop")
    follower.look()
    assert record.endings == []
    change(folder, "running", steps=10)
    follower.look()
    assert record.updates == [(0, ""), (10, "x seed 3")]
    change(folder, "finished", steps=50)
    follower.look()
    assert record.endings == ["x seed 3: exact match 0.500 at length 8, 2 s of training"]


def test_a_run_that_ended_is_one_line(tmp_path: Path) -> None:
    run = results.read(write_run(tmp_path / "run", "model=rnn", seed=3, exact_match={8: 1 / 8}))
    assert watch.ended(run) == "rnn seed 3: exact match 0.125 at length 8, 2 s of training"
    assert watch.ended(replace(run, problem="failed: disk")) == "rnn seed 3: failed: disk"


def test_a_look_that_fails_does_not_keep_a_stop_from_being_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.01)
    folder = write_run(tmp_path / "run")
    jobs = [Watched("x", 0, folder, 50)]
    stop, flag = Stop(), tmp_path / "stop"
    follower = Watch(jobs, Recorder(), stop, flag)
    change(folder, "finished")
    (folder / "config.yaml").write_text("a: [1")
    with suppress(ConfigError), follower:  # the last look is not the thread's
        time.sleep(0.05)
        stop.signal = 2
        wait(flag.exists)
    assert flag.exists()


def test_a_thread_looks_from_time_to_time_and_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.01)
    folder = write_run(tmp_path / "run")
    record = Recorder()
    with Watch([Watched("x", 0, folder, 50)], record, Stop(), tmp_path / "stop"):
        change(folder, "running", steps=3)
        wait(lambda: (3, "x seed 0") in record.updates)
        monkeypatch.setattr(watch, "LOOK_EVERY", 60.0)
        time.sleep(0.05)
        change(folder, "finished", steps=50)
    assert len(record.endings) == 1
    assert record.updates[-1] == (50, "")
    assert not (tmp_path / "stop").exists()


def test_a_stop_is_passed_on_by_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.01)
    stop, flag = Stop(), tmp_path / "stop"
    with Watch([], Recorder(), stop, flag):
        time.sleep(0.05)
        assert not flag.exists()
        stop.signal = 2
        wait(flag.exists)
    assert Stop(flag)()


def wait(condition: Callable[[], bool]) -> None:
    """Until it is so, 10 s at most."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
