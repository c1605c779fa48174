"""The door that every task shares: strings to read, and what to write for each."""

import string
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from lookback.rules import PositiveInt
from lookback.tokens import FIRST_SYMBOL, Vocabulary

Ids = NDArray[np.int64]
ALPHABET = string.ascii_lowercase + string.ascii_uppercase + string.digits


class Task(ABC):
    """Strings over an alphabet, and a rule from source to target. A subclass states the rule.

    Sources and targets are arrays of ids, without marks; `data.py` adds BOS and EOS.

    Args:
        alphabet_size: number of letters, 1 to 62: a-z, then A-Z, then 0-9.

    Attributes:
        source_vocabulary: symbols of sources.
        target_vocabulary: symbols of targets.

    Raises:
        ValueError: if there are no such letters.
    """

    def __init__(self, *, alphabet_size: PositiveInt) -> None:
        if not 1 <= alphabet_size <= len(ALPHABET):
            raise ValueError(f"alphabet_size must be 1 to {len(ALPHABET)}, but is {alphabet_size}")
        self.alphabet_size = alphabet_size
        self.source_vocabulary = self.target_vocabulary = Vocabulary(ALPHABET[:alphabet_size])

    @abstractmethod
    def target(self, source: Ids) -> Ids:
        """What must be written for this source: (source,) -> (target,)."""

    def alignment(self, source: Ids) -> Ids | None:
        """Which place of the source each place of the target comes from: (target,), from 0.

        None where the task has no such answer.
        """
        return None

    def sample(self, rng: np.random.Generator, length: int) -> Ids:
        """Draw a source of this length: every letter independently, all equally likely.

        A task whose sources have more symbols than their length says what it counts.
        """
        return rng.integers(FIRST_SYMBOL, FIRST_SYMBOL + self.alphabet_size, length)

    def num_sources(self, length: int) -> int:
        """How many different sources of this length there are; beyond length 64, at least so many."""
        return int(self.alphabet_size ** min(length, 64))
