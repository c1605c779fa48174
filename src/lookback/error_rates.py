"""How far what was written is from what was wanted: whole outputs, and symbols by their edit distance."""

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein


@dataclass(frozen=True)
class Scored:
    """One output beside its reference.

    Attributes:
        source: text that was read.
        wanted: symbols of the reference, as its text has them, whether a run knows them or not.
        wrote: symbols of the output.
        ended: whether the output ended by itself.
        length: symbols of the source.
    """

    source: str
    wanted: list[str]
    wrote: list[str]
    ended: bool
    length: int

    @property
    def right(self) -> bool:
        """Whether the output is the reference, to the last symbol."""
        return self.ended and self.wanted == self.wrote

    @property
    def distance(self) -> int:
        """Symbols to put in, leave out or replace to get from one to the other (Levenshtein)."""
        return Levenshtein.distance(self.wanted, self.wrote)


@dataclass(frozen=True)
class ErrorRates:
    """Of several outputs.

    Attributes:
        pairs: how many.
        exact_match: share of outputs that are right.
        word_error_rate: share of outputs that are wrong, as SIGMORPHON counts words.
        token_error_rate: edit distances of all outputs by symbols of all references; it may pass 1.
    """

    pairs: int
    exact_match: float
    word_error_rate: float
    token_error_rate: float


def error_rates(outputs: Sequence[Scored]) -> ErrorRates:
    """Rates over outputs, each counting alike for words, each symbol for tokens.

    Raises:
        ValueError: if there is no output.
    """
    if not outputs:
        raise ValueError("outputs must be at least one, but there are none")
    right = sum(one.right for one in outputs)
    edits, symbols = sum(one.distance for one in outputs), sum(len(one.wanted) for one in outputs)
    return ErrorRates(len(outputs), right / len(outputs), (len(outputs) - right) / len(outputs), edits / symbols)


def by_length(outputs: Sequence[Scored]) -> dict[int, ErrorRates]:
    """The same for each length of the source."""
    lengths = sorted({one.length for one in outputs})
    return {length: error_rates([one for one in outputs if one.length == length]) for length in lengths}


def worst(outputs: Sequence[Scored], count: int) -> list[Scored]:
    """The outputs farthest from their references, by edit distance, then in the order of the file."""
    wrong = [one for one in outputs if not one.right]
    return sorted(wrong, key=lambda one: -one.distance)[:count]
