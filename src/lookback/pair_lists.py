"""All pairs of a task: as text, their vocabularies, and as ids; worked out once, however many tasks read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lookback import pair_file, text_ids
from lookback.pair_file import PairFile, Reading
from lookback.text_ids import EncodedPairs
from lookback.tokens import UNK, Vocabulary

Vocabularies = tuple[Vocabulary, Vocabulary]  # of sources, of targets


@dataclass(frozen=True)
class Wanted:
    """Which pairs, and how they are read.

    Attributes:
        paths: name of a list -> its file; None = it has none.
        share: of the training file's sources that is kept for validation.
        reading: how files are read.
        shared: whether sources and targets have one vocabulary.
        min_count: how often the training pairs must have a symbol.
    """

    paths: tuple[tuple[str, str | None], ...]
    share: float | None
    reading: Reading
    shared: bool
    min_count: int


class PairLists:
    """The pairs.

    Args:
        wanted: which.

    Raises, at the first look:
        PairFileError: if a file cannot be read, or a line is no pair.
        ValueError: if no symbol occurs often enough.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    @cached_property
    def files(self) -> Mapping[str, PairFile]:
        """The pairs as text: train, validation, and test if there is such a file."""
        want = self._wanted
        found = {
            name: pair_file.read_once(Path(path), want.reading) for name, path in want.paths if path is not None
        }
        if want.share is not None:
            found["train"], found["validation"] = pair_file.split_off(found["train"], want.share)
        return found

    @cached_property
    def digest(self) -> str:
        """The same for the same pairs, wherever they lie."""
        return pair_file.digest(self.files)

    @cached_property
    def vocabularies(self) -> Vocabularies:
        """Of the training pairs."""
        file, reading = self.files["train"], self._wanted.reading
        source = text_ids.count_symbols(file.sources, reading.source_unit)
        target = text_ids.count_symbols(file.targets, reading.target_unit)
        if self._wanted.shared:
            both = {symbol: source.get(symbol, 0) + target.get(symbol, 0) for symbol in [*source, *target]}
            source = target = both
        least = self._wanted.min_count
        return text_ids.make_vocabulary(source, least), text_ids.make_vocabulary(target, least)

    @cached_property
    def encoded(self) -> Mapping[str, EncodedPairs]:
        """The pairs as ids of these vocabularies."""
        return self.encode(self.vocabularies)

    def encode(self, vocabularies: Vocabularies) -> Mapping[str, EncodedPairs]:
        """The pairs as ids."""
        (source, target), reading = vocabularies, self._wanted.reading
        return {
            name: EncodedPairs(
                text_ids.encode(file.sources, reading.source_unit, source),
                text_ids.encode(file.targets, reading.target_unit, target),
            )
            for name, file in self.files.items()
        }


def first_target(lists: Mapping[str, EncodedPairs], source: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The target of the first pair with this source; None if there is none, or it has unknown symbols.

    A source with unknown symbols may be any of several texts.
    """
    if UNK in source:
        return None
    for pairs in lists.values():
        number = pairs.sources.find(source)
        if number is not None:
            return pairs.targets[number]
    return None


def pair_lists(wanted: Wanted) -> PairLists:
    """The pairs, those of before if no file has changed since."""
    stamps = tuple(None if path is None else pair_file.stamp(Path(path)) for _, path in wanted.paths)
    return _kept(wanted, stamps)


@lru_cache(maxsize=4)
def _kept(wanted: Wanted, stamps: object) -> PairLists:
    return PairLists(wanted)
