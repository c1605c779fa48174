"""Means over seeds with 95 % intervals, by scipy: Student's t, since seeds are few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: of the values.
        half_width: of its 95 % interval, mean - half_width to mean + half_width; None for a single value.
        count: number of values.
    """

    mean: float
    half_width: float | None
    count: int

    @property
    def low(self) -> float:
        """Where the interval begins."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """Where the interval ends."""
        return self.mean + (self.half_width or 0.0)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and interval of one value a seed; None if there are no values.

    If all values are the same the interval has no width: these seeds say nothing of how much others would differ.
    """
    if not values:
        return None
    mean = float(np.mean(values))
    if len(values) == 1:
        return Estimate(mean, None, 1)
    if min(values) == max(values):
        return Estimate(values[0], 0.0, len(values))
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
    return Estimate(mean, float(high - low) / 2, len(values))


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Estimate | None:
    """The mean over seeds of value - baseline, each on the same seed; seeds that only one has are left out.

    Args:
        values: seed -> value.
        baseline: seed -> value.
    """
    return estimate([value - baseline[seed] for seed, value in values.items() if seed in baseline])
