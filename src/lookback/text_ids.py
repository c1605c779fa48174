"""Texts as ids: which symbols there are, and many rows of ids in one array."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookback.symbols import Unit, count, split
from lookback.tokens import UNK, Vocabulary


def count_symbols(texts: Sequence[str], unit: Unit) -> dict[str, int]:
    """How often each symbol occurs."""
    if unit == "character":
        points, counts = np.unique(_points(texts), return_counts=True)
        return {chr(point): int(count) for point, count in zip(points.tolist(), counts, strict=True)}
    return dict(Counter(split(" ".join(texts), unit)))


def _points(texts: Sequence[str]) -> NDArray[np.uint32]:
    """The code points of all texts, one after another."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")


def make_vocabulary(counts: Mapping[str, int], min_count: int) -> Vocabulary:
    """The symbols that occur often enough, the frequent ones first, then in the order of their code points.

    Raises:
        ValueError: if none does.
    """
    kept = sorted((symbol for symbol in counts if counts[symbol] >= min_count), key=lambda s: (-counts[s], s))
    if not kept:
        most = max(counts.values(), default=0)
        raise ValueError(
            f"min_count must leave a symbol, but is {min_count}, and none occurs more often than {most}"
        )
    return Vocabulary(kept)


class Ragged:
    """Many arrays of ids in one.

    Args:
        ids: all of them, one array after another.
        lengths: (array,), how many each has.
    """

    def __init__(self, ids: NDArray[np.int32], lengths: NDArray[np.int64]) -> None:
        self.ids, self.lengths = ids, lengths
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        """Number of arrays."""
        return len(self.lengths)

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        """One array."""
        end = int(self._ends[number])
        return self.ids[end - int(self.lengths[number]) : end].astype(np.int64)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """All arrays, in order."""
        return (self[number] for number in range(len(self)))

    def find(self, wanted: NDArray[np.int64]) -> int | None:
        """The number of the first array that is this one; None if there is none."""
        numbers = np.flatnonzero(self.lengths == len(wanted))
        starts = self._ends[numbers] - len(wanted)
        for place, symbol in enumerate(wanted):
            stay = self.ids[starts + place] == symbol
            numbers, starts = numbers[stay], starts[stay]
        return int(numbers[0]) if len(numbers) else None

    @property
    def unknown(self) -> int:
        """How many ids are UNK."""
        return int((self.ids == UNK).sum())


def encode(texts: Sequence[str], unit: Unit, vocabulary: Vocabulary) -> Ragged:
    """The ids of all texts; UNK for symbols that the vocabulary does not have."""
    if unit == "character":
        points, places = np.unique(_points(texts), return_inverse=True)
        ids = np.array(vocabulary.encode(map(chr, points.tolist())), dtype=np.int32)[places]
        return Ragged(ids, np.array([len(text) for text in texts]))
    flat = np.array(vocabulary.encode(split(" ".join(texts), unit)), dtype=np.int32)
    return Ragged(flat, np.array([count(text, unit) for text in texts]))


@dataclass(frozen=True)
class EncodedPairs:
    """The pairs of one file as ids: sources, targets."""

    sources: Ragged
    targets: Ragged

    def __len__(self) -> int:
        return len(self.sources)

    def pair(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One pair."""
        return self.sources[number], self.targets[number]
