"""Timing by ratios: ours and theirs in turn (A B A B ...), so that both meet the same state of the machine."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lookback.config import Config
from lookback.data import Batch, train_batch

Pair = tuple[float, float]
"""The values of one round: ours, theirs."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: what was measured.
        unit: of `ours` and `theirs`.
        against: what `theirs` is.
        ours: median over rounds.
        theirs: median over rounds.
        ratio: median over rounds of ours / theirs.
        ratio_min: the lowest ratio of a round.
        ratio_max: the highest.
        rounds: ours and theirs in each round.
    """

    name: str
    unit: str
    against: str
    ours: float
    theirs: float
    ratio: float
    ratio_min: float
    ratio_max: float
    rounds: list[Pair]

    @classmethod
    def of(cls, name: str, unit: str, against: str, rounds: Sequence[Pair]) -> "Row":
        """Sum up rounds."""
        ours, theirs = (statistics.median(values) for values in zip(*rounds, strict=True))
        ratios = [ours / theirs for ours, theirs in rounds]
        ratio = statistics.median(ratios)
        return cls(name, unit, against, ours, theirs, ratio, min(ratios), max(ratios), list(rounds))


@dataclass(frozen=True)
class Work:
    """What every section is to do.

    Attributes:
        config: sizes, settings and seed.
        rounds: timed rounds; an untimed one comes first.
        steps: batches in a round.
    """

    config: Config
    rounds: int
    steps: int

    def batches(self) -> list[Batch]:
        """The training batches of all rounds, the untimed one first."""
        task, count = self.config.task(), self.steps * (self.rounds + 1)
        return [train_batch(task, self.config.data, self.config.seed, step) for step in range(count)]


def alternate(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> list[Pair]:
    """Run both once untimed, then in turn.

    Args:
        ours: does one round of work.
        theirs: does the same work another way.
        rounds: how often each is timed.

    Returns:
        wall-clock seconds of ours and theirs in each round.
    """
    ours()
    theirs()
    return [(seconds(ours), seconds(theirs)) for _ in range(rounds)]


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock seconds that a piece of work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def milliseconds(seconds: Sequence[Pair], steps: int) -> list[Pair]:
    """Seconds a round -> milliseconds a step."""
    return [(1000 * ours / steps, 1000 * theirs / steps) for ours, theirs in seconds]
