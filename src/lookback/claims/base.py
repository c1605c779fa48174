"""The door that every claim shares: a sentence of the lessons, an experiment, and the rule of its verdict.

The verdict is a function of the numbers alone, written beside the experiment before anything has run.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lookback.bench import Bench
from lookback.intervals import estimate
from lookback.plots import Plot
from lookback.sheets import NOTHING, Sheet, shown

Values = list[float | None]
"""One a seed, or a round of a measurement; None where there is none, such as a score that was not reached."""

Numbers = dict[str, dict[str, Values]]
"""What an experiment found: condition, such as the name of a model -> measure -> values, in order."""

HELD, IN_PART, NOT_HERE = "held", "held in part", "did not hold here"


@dataclass(frozen=True)
class Check:
    """One part of the rule.

    Attributes:
        rule: what must be so, in words that know no result.
        holds: whether it is.
        found: the numbers that say so.
        otherwise: the likely reason where it does not hold.
        core: whether the claim falls with it.
    """

    rule: str
    holds: bool
    found: str
    otherwise: str
    core: bool = False


def verdict(checks: Sequence[Check]) -> str:
    """Held if every check holds; did not hold here if a core check does not; else held in part."""
    if all(check.holds for check in checks):
        return HELD
    return IN_PART if all(check.holds for check in checks if check.core) else NOT_HERE


class Claim(ABC):
    """One claim. What it needs to know is in its yaml, as the constructor's keyword-only parameters.

    Attributes:
        sentence: the claim, in one sentence.
        lesson: where the lessons say so.
        setup: what is done to try it, in a few sentences.
        first: the heading of the column of conditions.
        experiment: the choice of configs/experiment that is trained; None if nothing is. With quick=true it is the
            choice of that name with `_quick` at its end.
    """

    sentence: ClassVar[str]
    lesson: ClassVar[str]
    setup: ClassVar[str]
    first: ClassVar[str] = "model"
    experiment: str | None = None

    @abstractmethod
    def measure(self, bench: Bench) -> Numbers:
        """Run the experiment."""

    @abstractmethod
    def checks(self, numbers: Numbers) -> list[Check]:
        """The rule: at least one check, and at least one that is core."""

    @abstractmethod
    def plots(self, numbers: Numbers) -> list[Plot]:
        """The figure of the report, a set of axes an item."""

    def tables(self, numbers: Numbers) -> list[Sheet]:
        """The numbers: a row a condition, a column a measure."""
        return [table(self.first, numbers)]

    def notes(self, numbers: Numbers) -> list[str]:
        """What must be known to read the numbers."""
        return []


def table(first: str, numbers: Mapping[str, Mapping[str, Values]], title: str = "Numbers") -> Sheet:
    """Conditions as rows, measures as columns.

    Args:
        first: the heading of the conditions.
        numbers: see `Numbers`; a condition may lack measures that others have.
        title: of the table.
    """
    measures = list(dict.fromkeys(measure for row in numbers.values() for measure in row))
    rows = [[name, *(cell(row.get(measure, [])) for measure in measures)] for name, row in numbers.items()]
    return Sheet(title, [first, *measures], rows)


def cell(values: Values) -> str:
    """A mean with its 95 % interval; where some values are missing, how many there are."""
    there = known(values)
    if not values:
        return NOTHING
    if len(there) < len(values):
        return f"{len(there)} of {len(values)}"
    if len(values) == 1 and there[0] == round(there[0]):
        return f"{there[0]:,.0f}"  # something that was counted
    found = estimate(there)
    size = max(abs(value) for value in there)
    if found is None or 0 < size < 0.001 or size >= 1e6:
        return f"{found.mean:.1e}" if found else NOTHING
    return shown(found, 0 if size >= 100 else 2 if size >= 10 else 3)


def known(values: Values) -> list[float]:
    """Those that there are."""
    return [value for value in values if value is not None]


def mean(values: Values) -> float:
    """Of those that there are; nan if there are none."""
    there = known(values)
    return sum(there) / len(there) if there else float("nan")


def below(values: Values, others: Values) -> tuple[bool, str]:
    """Whether values are lower than others on the same seeds: the paired 95 % interval is below 0.

    One missing among the values was not reached, so they are not lower. One missing among the others leaves its
    pair out of the interval; where that leaves fewer than two pairs, the rest of the values must be lower.

    Returns:
        whether they are, and the numbers in words.
    """
    words = f"{cell(values)} against {cell(others)}"
    pairs = [(one, other) for one, other in zip(values, others, strict=True) if one is not None]
    differences = [one - other for one, other in pairs if other is not None]
    if not pairs or len(pairs) < len(values):
        return False, words
    if len(differences) < 2:
        return len(differences) < len(pairs) and all(difference < 0 for difference in differences), words
    found = estimate(differences)
    assert found is not None
    return found.high < 0, f"{words}, difference {shown(found)}"
