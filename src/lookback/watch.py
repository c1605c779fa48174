"""Following the jobs of a comparison by what they leave in their folders, wherever they run."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lookback import results, sheets
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


class Watch:
    """Shows how far jobs are, and passes a stop on to them. Use as a context.

    Args:
        jobs: in the order in which they start.
        progress: where it is shown.
        stop: whether this process was told to stop.
        flag: the file that tells the jobs.
    """

    def __init__(self, jobs: Sequence[Watched], progress: ComparisonProgress, stop: Stop, flag: Path) -> None:
        self._waiting = list(jobs)
        self._steps = 0
        self._progress = progress
        self._stop, self._flag = stop, flag
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        while not self._done.wait(LOOK_EVERY):
            if self._stop():
                self._flag.touch()
            self.look()

    def look(self) -> None:
        """Tell what has ended since the last look, and how far the others are."""
        under_way = []
        for one in list(self._waiting):
            status = results.read_summary(one.folder).get("status", "")
            if status in ("finished", "failed"):
                self._waiting.remove(one)
                self._steps += one.steps
                self._progress.ended(sheets.ended(results.read(one.folder, one.name)))
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
