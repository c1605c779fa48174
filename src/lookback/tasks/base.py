"""The door that every task shares: pairs of what is read and what must be written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lookback.symbols import Normal, Unit, join, normalised, split
from lookback.tokens import Vocabulary

Ids = NDArray[np.int64]
Pair = tuple[Ids, Ids]
Split = Literal["train", "validation", "test"]


class Task(ABC):
    """Pairs of a source and its target, to learn from and to be tested on.

    Sources and targets are arrays of ids, without marks; `data.py` adds BOS and EOS. All pairs are pure functions
    of what they are asked for.

    Attributes:
        source_vocabulary: symbols of sources.
        target_vocabulary: symbols of targets.
        source_unit: what a symbol of a source is in a text: a character or a word.
        target_unit: the same of targets.
        normalise: Unicode normal form of texts, or none.
        listed: whether there is a fixed list of pairs, so that there are epochs; False = they are drawn for ever.
    """

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    source_unit: Unit = "character"
    target_unit: Unit = "character"
    normalise: Normal = "none"
    listed: bool = False

    @abstractmethod
    def training_pairs(self, count: int, lengths: range, seed: int, step: int) -> list[Pair]:
        """The pairs of one training batch, never held-out ones."""

    @abstractmethod
    def validation_pairs(self, lengths: range, count: int) -> tuple[list[Pair], list[Pair]]:
        """Pairs to choose the best weights by: of all lengths, and of the longest, about `count` each."""

    @abstractmethod
    def test_pairs(
        self, lengths: Sequence[int] | None, count: Callable[[int], int | None], split: Split
    ) -> dict[int, list[Pair]]:
        """Held-out pairs by the length of their source.

        Args:
            lengths: which; None = all that a list has.
            count: how many of each length; None = all that a list has.
            split: which kind of held-out pairs.
        """

    @abstractmethod
    def probe_pairs(self, lengths: Sequence[int]) -> list[Pair]:
        """A validation pair to watch a model on for each of these lengths, the short ones first.

        A list that has no source of a length has the nearest in its place.
        """

    def holds_out(self, length: int) -> bool:
        """Whether training never sees what is tested at this length."""
        return True

    @abstractmethod
    def answer(self, source: Ids) -> Ids | None:
        """What must be written for a source: (source,) -> (target,); None where nobody knows.

        Raises:
            ValueError: if the task has no such source.
        """

    def known_answer(self, source: Ids) -> Ids:
        """The same where there must be one.

        Raises:
            ValueError: if there is none.
        """
        answer = self.answer(source)
        if answer is None:
            text = join(self.source_vocabulary.decode(source.tolist()), self.source_unit)
            raise ValueError(f"source must have a known answer, but {text!r} has none")
        return answer

    def alignment(self, source: Ids) -> Ids | None:
        """Which place of the source each place of the target comes from: (target,), from 0.

        None where the task has no such answer.
        """
        return None

    @abstractmethod
    def spell(self, text: str) -> Ids:
        """The ids of a typed text.

        Raises:
            ValueError: if it is empty, or has symbols that the task cannot read.
        """

    def symbols(self, text: str) -> list[str]:
        """A text as symbols of a source, known or not."""
        return split(normalised(text, self.normalise), self.source_unit)

    def written(self, symbols: Sequence[str]) -> str:
        """Symbols of a target as a text."""
        return join(symbols, self.target_unit)

    @abstractmethod
    def places(self, length: int) -> tuple[int, int]:
        """How many tokens a source of this length has, marks included, and how many the decoder writes for it."""

    def batches_an_epoch(self, count: int, lengths: range) -> int:
        """How many training batches of so many pairs an epoch has.

        Raises:
            ValueError: if the pairs are no list.
        """
        raise ValueError(f"there are no epochs of {count} strings of lengths {lengths}: they are drawn for ever")

    def tested(self, split: Split) -> Split:
        """Which kind of pairs `test_pairs` has where this kind is asked for."""
        return split

    @property
    def digest(self) -> str:
        """The same for the same list of pairs, wherever it lies; empty where pairs are drawn."""
        return ""

    def learned_lengths(self, lengths: range) -> tuple[int, int]:
        """The shortest and the longest source that is learned from, if sources of these lengths are."""
        return lengths.start, lengths.stop - 1

    def notes(self, lengths: range) -> list[str]:
        """What a person should know of the pairs before training on sources of these lengths, a line each."""
        return []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the task, so that predicting needs nothing but the run folder."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 (most tasks have nothing to restore)
        """Take over what `state` gave."""
