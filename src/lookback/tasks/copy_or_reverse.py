"""Copy or reverse."""

import numpy as np

from lookback.rules import PositiveInt
from lookback.tasks.base import Ids
from lookback.tasks.synthetic import ALPHABET, Synthetic
from lookback.tokens import FIRST_SYMBOL, Vocabulary

COPY, REVERSE = ">", "<"


class CopyOrReverse(Synthetic):
    """Write what follows the mark: as it stands after >, last letter first after <.

    >abc -> abc
    <abc -> cba

    The mark is the first symbol of the source. A length counts letters, so that a source has one symbol more.
    Letters have the same ids in both vocabularies, and the marks follow them in that of the source.
    """

    def __init__(self, *, alphabet_size: PositiveInt) -> None:
        super().__init__(alphabet_size=alphabet_size)
        self.source_vocabulary = Vocabulary([*ALPHABET[:alphabet_size], COPY, REVERSE])
        self.marks = FIRST_SYMBOL + alphabet_size + np.arange(2)  # ids of COPY and REVERSE

    def target(self, source: Ids) -> Ids:
        """The letters after the mark, or those letters backwards: (1 + letters,) -> (letters,).

        Raises:
            ValueError: if the source does not begin with its only mark.
        """
        return source[self.alignment(source)]

    def alignment(self, source: Ids) -> Ids:
        """Letter t stands at place 1 + t, or at the last place - t; the mark is place 0.

        Raises:
            ValueError: if the source does not begin with its only mark.
        """
        if np.flatnonzero(np.isin(source, self.marks)).tolist() != [0]:
            text = "".join(self.source_vocabulary.decode(source.tolist()))
            raise ValueError(f"source must begin with its only mark, {COPY} or {REVERSE}, but is {text!r}")
        places = np.arange(1, len(source))
        return places if source[0] == self.marks[0] else places[::-1]

    def sample(self, rng: np.random.Generator, length: int) -> Ids:
        """Draw a mark and as many letters as the length says, all equally likely: (1 + length,)."""
        return np.concatenate([rng.choice(self.marks, 1), super().sample(rng, length)])

    def num_sources(self, length: int) -> int:
        """Twice as many as there are strings of letters."""
        return 2 * super().num_sources(length)
