"""Tasks whose strings are drawn, over an alphabet, and whose right answer is a rule.

Held-out strings are those whose content hash falls in a fixed class: 1 in 32 for validation, 1 in 32 for test.
Training draws again when it meets one, so it never sees them, whatever the seed, the model and the task.
Where there are fewer than MIN_SOURCES strings of a length (with 26 letters: lengths 1 and 2) there is no room
to hold any out: training sees them all, and evaluation says so.
"""

import hashlib
import string
from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from lookback.rules import PositiveInt
from lookback.tasks.base import Ids, Pair, Split, Task
from lookback.tokens import FIRST_SYMBOL, Vocabulary

ALPHABET = string.ascii_lowercase + string.ascii_uppercase + string.digits
HASH_CLASSES = 32
MIN_SOURCES = 10_000
TRAIN_STREAM, HELD_OUT_STREAM = 0, 1
REPEATS = 1000  # so many strings in a row that were drawn before: there are no more


class Synthetic(Task):
    """Strings over an alphabet, and a rule from source to target. A subclass states the rule.

    Args:
        alphabet_size: number of letters, 1 to 62: a-z, then A-Z, then 0-9.

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

    def answer(self, source: Ids) -> Ids:
        """See `Task.answer`: the rule knows every answer."""
        return self.target(source)

    def sample(self, rng: np.random.Generator, length: int) -> Ids:
        """Draw a source of this length: every letter independently, all equally likely.

        A task whose sources have more symbols than their length says what it counts.
        """
        return rng.integers(FIRST_SYMBOL, FIRST_SYMBOL + self.alphabet_size, length)

    def num_sources(self, length: int) -> int:
        """How many different sources of this length there are; beyond length 64, at least so many."""
        return int(self.alphabet_size ** min(length, 64))

    def pairs(self, sources: Sequence[Ids]) -> list[Pair]:
        """Each source with its target."""
        return [(source, self.target(source)) for source in sources]

    def training_pairs(self, count: int, lengths: range, seed: int, step: int) -> list[Pair]:
        """See `Task.training_pairs`; lengths are uniform in their range."""
        rng = np.random.default_rng([TRAIN_STREAM, seed, step])
        drawn = rng.integers(lengths.start, lengths.stop, count)
        return self.pairs([draw(self, rng, int(length), "train") for length in drawn])

    def validation_pairs(self, lengths: range, count: int) -> tuple[list[Pair], list[Pair]]:
        """See `Task.validation_pairs`: as many of each length as of every other."""
        mixed = [lengths[number % len(lengths)] for number in range(count)]
        return self.probe_pairs(mixed), self.probe_pairs([lengths[-1]] * count)

    def test_pairs(
        self, lengths: Sequence[int] | None, count: Callable[[int], int | None], split: Split
    ) -> dict[int, list[Pair]]:
        """See `Task.test_pairs`; lengths and counts must be given."""
        found = {}
        for length in sorted(set(lengths or ())):
            found[length] = self.pairs(held_out(self, length, count(length) or 0, split))
        return found

    def probe_pairs(self, lengths: Sequence[int]) -> list[Pair]:
        """See `Task.probe_pairs`."""
        rows = {length: held_out(self, length, lengths.count(length), "validation") for length in set(lengths)}
        return self.pairs([source for length in sorted(rows) for source in rows[length]])

    def holds_out(self, length: int) -> bool:
        """See `Task.holds_out`."""
        return has_room(self, length)

    def spell(self, text: str) -> Ids:
        """See `Task.spell`: a symbol a character."""
        known = self.source_vocabulary
        strange = sorted(set(text) - set(known.symbols))
        if strange or not text:
            rule = f"must be made of the task's symbols, {''.join(known.symbols)}"
            unknown = f" (unknown: {' '.join(map(repr, strange))})" if strange else ""
            raise ValueError(f"source {rule}, but is {text!r}{unknown}")
        return np.array(known.encode(text))

    def places(self, length: int) -> tuple[int, int]:
        """See `Task.places`."""
        source = self.sample(np.random.default_rng(0), length)
        return len(source) + 2, len(self.target(source)) + 1


def split_of(source: Ids) -> Split:
    """The split that a source belongs to by its content."""
    digest = hashlib.blake2b(source.astype("<i4").tobytes(), digest_size=4).digest()
    match int.from_bytes(digest, "little") % HASH_CLASSES:
        case 0:
            return "validation"
        case 1:
            return "test"
        case _:
            return "train"


def has_room(task: Synthetic, length: int) -> bool:
    """Whether strings of this length can be held out."""
    return task.num_sources(length) >= MIN_SOURCES


def draw(task: Synthetic, rng: np.random.Generator, length: int, split: Split) -> Ids:
    """Draw a source of this split, or any source where the length has no room for splits."""
    source = task.sample(rng, length)
    if has_room(task, length):
        while split_of(source) != split:
            source = task.sample(rng, length)
    return source


def held_out(task: Synthetic, length: int, count: int, split: Split) -> list[Ids]:
    """Different strings of one length, the same for every model and every seed.

    Returns:
        `count` sources, or all there are if there are fewer.
    """
    rng = np.random.default_rng([HELD_OUT_STREAM, split == "test", length])
    found: dict[bytes, Ids] = {}
    repeats = 0
    while len(found) < min(count, task.num_sources(length)) and repeats < REPEATS:
        source = draw(task, rng, length, split)
        repeats = repeats + 1 if source.tobytes() in found else 0
        found[source.tobytes()] = source
    return list(found.values())
