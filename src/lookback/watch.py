"""Following the jobs of a comparison by what they leave in their folders, wherever they run."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lookback import results
from lookback.results import Result
from lookback.scoreboard import ComparisonProgress
from lookback.stop import Stop

LOOK_EVERY = 1.0  # seconds between looks


@dataclass(frozen=True)
class Watched:
    """One job: its model, its seed, its folder, and the steps it is to do."""

    name: str
    seed: int
    folder: Path
    steps: int


def _written(folder: Path) -> int:
    """When a run's summary was last written, in nanoseconds; 0 if there is none."""
    with suppress(OSError):
        return (folder / "summary.json").stat().st_mtime_ns
    return 0


def ended(result: Result) -> str:
    """A run that has just ended, in a line."""
    name = f"{result.name} seed {result.seed}"
    if result.problem:
        return f"{name}: {result.problem}"
    score, seconds = result.at_judged("exact_match"), result.summary["train_seconds"]
    where = "on all pairs" if result.listed else f"at length {result.judged}"
    exact = score if isinstance(score, str) else f"{score:.3f}"
    return f"{name}: exact match {exact} {where}, {seconds:.0f} s of training"


class Watch:
    """Shows how far jobs are, and passes a stop on to them. Use as a context.

    Args:
        jobs: in the order in which they start.
        progress: where it is shown.
        stop: whether this process was told to stop.
        flag: the file that tells the jobs.
    """

    def __init__(self, jobs: Sequence[Watched], progress: ComparisonProgress, stop: Stop, flag: Path) -> None:
        self._waiting = {job: _written(job.folder) for job in jobs}  # and when its summary was last written
        self._steps = 0
        self._progress = progress
        self._stop, self._flag = stop, flag
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        while not self._done.wait(LOOK_EVERY):
            if self._stop():
                self._flag.touch()
            with suppress(Exception):  # what is shown must never keep a stop from being passed on
                self.look()

    def look(self) -> None:
        """Tell what has ended since the last look, and how far the others are."""
        under_way = []
        for one in list(self._waiting):
            status = results.read_summary(one.folder).get("status", "")
            if _written(one.folder) == self._waiting[one]:
                continue  # what an earlier job has left
            if status in ("finished", "failed"):
                del self._waiting[one]
                self._steps += one.steps
                self._progress.ended(ended(results.read(one.folder, one.name)))
            elif status == "running":
                under_way.append(one)
        steps = self._steps + sum(results.steps_done(one.folder) for one in under_way)
        self._progress.update(steps, ", ".join(f"{one.name} seed {one.seed}" for one in under_way))

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.look()
