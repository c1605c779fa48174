"""Timing by ratios: ours and theirs in turn (A B A B ...), so that all meet the same state of the machine."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lookback import config
from lookback.config import Config
from lookback.data import Batch, train_batch
from lookback.launcher import Typed
from lookback.overrides import compose_more
from lookback.tokens import PAD

Pair = tuple[float, float]
"""The values of one round: ours, theirs."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    A value of None is one that there is not: something took longer than anybody waited, in half of the rounds or
    more. A ratio of such a round counts as above, or below, all others; where neither came to an end there is none.

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
    ours: float | None
    theirs: float | None
    ratio: float | None
    ratio_min: float | None
    ratio_max: float | None
    rounds: list[tuple[float | None, float | None]]

    @classmethod
    def of(cls, name: str, unit: str, against: str, rounds: Sequence[Pair]) -> "Row":
        """Sum up rounds; infinity is a value that was never reached."""
        ours, theirs = (statistics.median(values) for values in zip(*rounds, strict=True))
        ratios = [ours / theirs for ours, theirs in rounds]
        if any(math.isnan(ratio) for ratio in ratios):  # neither was reached
            ratios = [math.inf]
        of_ratios = (statistics.median(ratios), min(ratios), max(ratios))
        kept = [(_finite(ours), _finite(theirs)) for ours, theirs in rounds]
        ratio, lowest, highest = (value if 0 < value < math.inf else None for value in of_ratios)
        return cls(name, unit, against, _finite(ours), _finite(theirs), ratio, lowest, highest, kept)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Figure:
    """One number that has nothing beside it.

    Attributes:
        name: what was measured.
        unit: of `value`.
        value: what was found.
        low: where its 95 % interval begins.
        high: where it ends.
        points: what it was worked out from: pairs of a size and a measurement.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    points: list[Pair]


@dataclass(frozen=True)
class Work:
    """What every section is to do.

    Attributes:
        config: sizes, settings and seed.
        rounds: timed rounds; an untimed one comes first.
        steps: batches in a round.
        overrides: what `config` was composed of, so that a section can change it.
    """

    config: Config
    rounds: int
    steps: int
    overrides: tuple[str, ...] = ()

    @classmethod
    def of(cls, rounds: int, steps: int, overrides: Sequence[str]) -> "Work":
        """At the sizes of configs/train.yaml, but for the overrides, and on the CPU.

        Raises:
            ConfigError: naming every problem with the overrides.
        """
        loaded = config.build(compose_more(Typed("train", ("train.device=cpu",)), overrides))
        return cls(loaded, rounds, steps, tuple(overrides))

    def changed(self, *more: str) -> "Work":
        """The same with more overrides after the first ones."""
        return Work.of(self.rounds, self.steps, [*self.overrides, *more])

    def at_most(self, rounds: int, steps: int) -> "Work":
        """The same, but shorter where it was longer than this: for what takes long."""
        return Work(self.config, min(rounds, self.rounds), min(steps, self.steps), self.overrides)

    def batches(self) -> list[Batch]:
        """The training batches of all rounds, the untimed one first."""
        task, count = self.config.task(), self.steps * (self.rounds + 1)
        return [train_batch(task, self.config.data, self.config.seed, step) for step in range(count)]


def alternate(*works: Callable[[], object], rounds: int, warm: bool = True) -> list[tuple[float, ...]]:
    """Run all once untimed, then in turn.

    Args:
        works: each does one round of the same work, another way.
        rounds: how often each is timed.
        warm: whether to begin with the untimed round.

    Returns:
        wall-clock seconds of each work in each round.
    """
    if warm:
        for work in works:
            work()
    return [tuple(seconds(work) for work in works) for _ in range(rounds)]


def beside(rounds: Sequence[tuple[float, ...]], place: int) -> list[Pair]:
    """Of rounds in which several took part: the first, and the one at this place."""
    return [(times[0], times[place]) for times in rounds]


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock seconds that a piece of work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def milliseconds(seconds: Sequence[Pair], steps: int) -> list[Pair]:
    """Seconds a round -> milliseconds a step."""
    return [(1000 * ours / steps, 1000 * theirs / steps) for ours, theirs in seconds]


def real_symbols(batch: Batch) -> tuple[list[int], list[int]]:
    """How many symbols of each row are real: of the source, marks included, and of what the decoder predicts.

    Pads are not: a model that works on them does nothing useful.
    """
    predicted = (batch.labels != PAD).sum(dim=1)
    return batch.source_lengths.tolist(), predicted.tolist()
