"""What the walk through the lesson starts from, and what its steps hand to whoever shows them."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lookback import lesson
from lookback.lesson import Array

MOST_WORDS = 12  # more would not fit into 80 columns
CONTROLS = ("Cc", "Cf", "Cs")  # kinds of letters that a terminal obeys, or that turn the direction of a line
JOINERS = "\u200c\u200d"  # also of the kind Cf, but some languages write their words with them


@dataclass(frozen=True)
class Setting:
    """What the walk goes through; sentence, sizes and seed are the second lesson's.

    Args:
        sentence: its words.
        seed: of the embeddings and of all matrices.
        d_model: width of the embeddings.
        dk: width of queries and keys of the single head.
        dv: width of its values.
        n_heads: heads of the layer with several.

    Raises:
        ValueError: if there are too few or too many words, control characters among them, or a negative seed.
    """

    sentence: tuple[str, ...] = ("The", "cat", "sat", "on", "the", "mat")
    seed: int = 42
    d_model: int = 8
    dk: int = 4
    dv: int = 4
    n_heads: int = 2

    def __post_init__(self) -> None:
        text = " ".join(self.sentence)
        if not 2 <= len(self.sentence) <= MOST_WORDS:
            rule = f"must have 2 to {MOST_WORDS} words, with spaces between them"
            raise ValueError(f"sentence {rule}, but has {len(self.sentence)}: {text[:60]!r}")
        if any(unicodedata.category(letter) in CONTROLS and letter not in JOINERS for letter in text):
            raise ValueError(f"sentence must have no control characters, but is {text[:60]!r}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, but is {self.seed}")

    def embeddings(self) -> Array:
        """(tokens, d_model) random numbers, the lesson's stand-in for embeddings."""
        return np.random.default_rng(self.seed).normal(0, 1, (len(self.sentence), self.d_model))

    def head(self) -> lesson.SelfAttention:
        """The single head, with random matrices."""
        return lesson.SelfAttention(self.d_model, self.dk, self.dv, self.seed)

    def layer(self) -> lesson.MultiHeadAttention:
        """The layer of several heads, with random matrices."""
        return lesson.MultiHeadAttention(self.d_model, self.n_heads, np.random.default_rng(self.seed))

    def causal(self) -> NDArray[np.bool_]:
        """(tokens, tokens), True where key <= query."""
        return np.tri(len(self.sentence), dtype=bool)


Values = Mapping[str, float | str]


@dataclass(frozen=True)
class Said:
    """Words of `walk_words.py` by their key, with the values that go into them."""

    key: str
    values: Values = field(default_factory=dict)


Label = str | Said
"""A name that stays as it is, or words in the reader's language."""


@dataclass(frozen=True)
class Grid:
    """A matrix with its rows and columns named; with `sums`, each row is followed by its sum."""

    name: str
    values: Array
    rows: Sequence[Label]
    columns: Sequence[Label]
    digits: int = 2
    sums: bool = False


@dataclass(frozen=True)
class Shades:
    """A map of weights (query, key), to be drawn in shades; the same words name its rows and columns."""

    name: str
    weights: Array
    words: Sequence[str]


@dataclass(frozen=True)
class Facts:
    """Arrays by name and shape, with a fact about each."""

    heading: Said
    rows: Sequence[tuple[str, tuple[int, ...], Label]]


Part = Grid | Shades | Facts


@dataclass(frozen=True)
class Page:
    """What a step found.

    Args:
        key: the words `<key>.title` and `<key>.shows` belong to it.
        formula: lines in the lesson's notation.
        parts: the arrays; those in one inner tuple stand side by side where there is room.
        notices: what to notice.
        values: those that go into `<key>.shows`.
    """

    key: str
    formula: Sequence[str]
    parts: Sequence[Sequence[Part]]
    notices: Sequence[Said]
    values: Values = field(default_factory=dict)
