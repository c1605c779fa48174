"""Your own pairs."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lookback import pair_file
from lookback.pair_file import PairFile, PairFileError, Reading, counted
from lookback.pair_lists import PairLists, Vocabularies, Wanted, first_target, pair_lists
from lookback.rules import File, PositiveInt, Share
from lookback.symbols import Normal, Unit, looks_spaced
from lookback.tasks.base import Ids, Pair, Split, Task
from lookback.text_ids import EncodedPairs
from lookback.tokens import Vocabulary

EPOCH_STREAM = 2
MOST_VALIDATION = 1000  # pairs that weights are chosen by; of more, evenly spread ones


class Pairs(Task):
    """What a file of pairs says: each line is a source, a tab, and its target.

    Vocabularies are those of the training pairs. Symbols that they do not have, or too seldom, are read as unknown;
    an unknown symbol is never written, so where one is wanted the output is wrong.

    Args:
        train: file to learn from.
        valid: file to choose the best weights by.
        split: in its place, the share of the training file's sources that are kept for that; which ones depends on
            their content alone, and equal sources stay together.
        test: file to test on; the validation pairs, if there is none.
        source_unit: whether a symbol of a source is a character or a word.
        target_unit: the same of targets.
        shared: whether both sides have one vocabulary.
        min_count: how often the training pairs must have a symbol.
        normalise: Unicode normal form of all text, or none.
        max_length: symbols that a side may have.
        on_error: what to do with lines that are no pairs.

    Raises:
        ValueError: if not exactly one of valid and split is given.
    """

    listed = True

    def __init__(
        self,
        *,
        train: File,
        valid: File | None,
        split: Share | None,
        test: File | None,
        source_unit: Unit,
        target_unit: Unit,
        shared: bool,
        min_count: PositiveInt,
        normalise: Normal,
        max_length: PositiveInt,
        on_error: Literal["stop", "skip"],
    ) -> None:
        if (valid is None) == (split is None):
            rule = "valid (a file) or split (a share of train) must be given, and not both"
            raise ValueError(f"{rule}, but they are {valid} and {split}")
        self._paths = {"train": train, "validation": valid, "test": test}
        self.source_unit, self.target_unit, self.normalise = source_unit, target_unit, normalise
        reading = Reading(
            source_unit=source_unit,
            target_unit=target_unit,
            normalise=normalise,
            max_length=max_length,
            on_error=on_error,
        )
        self._wanted = Wanted(tuple(self._paths.items()), split, reading, shared, min_count)
        self._state: dict[str, Any] | None = None
        self._chosen: dict[range, NDArray[np.int64]] = {}

    @cached_property
    def lists(self) -> PairLists:
        """The pairs.

        Raises:
            PairFileError: if a run was trained on other pairs.
        """
        found = pair_lists(self._wanted)
        if self._state is not None and found.digest != self._state["digest"]:
            raise PairFileError(f"{self._paths['train']}: its pairs are not those that the run learned from")
        return found

    @property
    def files(self) -> Mapping[str, PairFile]:
        """The pairs as text: train, validation, and test if there is such a file."""
        return self.lists.files

    @cached_property
    def vocabularies(self) -> Vocabularies:
        """Of sources and of targets; those of a run that was read back are its own."""
        if self._state is not None:
            return Vocabulary(self._state["source"]), Vocabulary(self._state["target"])
        return self.lists.vocabularies

    @property
    def source_vocabulary(self) -> Vocabulary:  # type: ignore[override]
        """See `Task`."""
        return self.vocabularies[0]

    @property
    def target_vocabulary(self) -> Vocabulary:  # type: ignore[override]
        """See `Task`."""
        return self.vocabularies[1]

    @cached_property
    def encoded(self) -> Mapping[str, EncodedPairs]:
        """The pairs as ids."""
        same = [one.symbols for one in self.vocabularies] == [one.symbols for one in self.lists.vocabularies]
        return self.lists.encoded if same else self.lists.encode(self.vocabularies)

    def training_pairs(self, count: int, lengths: range, seed: int, step: int) -> list[Pair]:
        """See `Task.training_pairs`: every pair once an epoch, in an order that depends on seed and epoch alone.

        The batches of an epoch have equal sizes but for one pair, at most `count`.
        """
        side, chosen = self.encoded["train"], self._eligible(lengths)
        epoch, number = divmod(step, self.batches_an_epoch(count, lengths))
        order = _order(len(chosen), seed, epoch)
        start, stop = (len(chosen) * at // self.batches_an_epoch(count, lengths) for at in (number, number + 1))
        return [side.pair(int(chosen[place])) for place in order[start:stop]]

    def batches_an_epoch(self, count: int, lengths: range) -> int:
        """See `Task.batches_an_epoch`."""
        return -(-len(self._eligible(lengths)) // count)

    def learned_lengths(self, lengths: range) -> tuple[int, int]:
        """See `Task.learned_lengths`."""
        own = self.encoded["train"].sources.lengths[self._eligible(lengths)]
        return int(own.min()), int(own.max())

    def _eligible(self, lengths: range) -> NDArray[np.int64]:
        """The numbers of training pairs whose source has such a length."""
        if lengths not in self._chosen:
            self._chosen[lengths] = self._choose(lengths)
        return self._chosen[lengths]

    def _choose(self, lengths: range) -> NDArray[np.int64]:
        own = self.encoded["train"].sources.lengths
        chosen = np.flatnonzero((own >= lengths.start) & (own < lengths.stop))
        if not len(chosen):
            rule = f"{self._paths['train']} has no source of {lengths.start} to {lengths.stop - 1} symbols"
            raise PairFileError(rule)
        return chosen

    def validation_pairs(self, lengths: range, count: int) -> tuple[list[Pair], list[Pair]]:
        """See `Task.validation_pairs`: all that there are, or MOST_VALIDATION of them, in both lists."""
        side = self.encoded["validation"]
        most = min(len(side), MOST_VALIDATION)
        found = [side.pair(number * len(side) // most) for number in range(most)]
        return found, found

    def test_pairs(
        self, lengths: Sequence[int] | None, count: Callable[[int], int | None], split: Split
    ) -> dict[int, list[Pair]]:
        """See `Task.test_pairs`; the first pairs of each length, in the order of the file."""
        side = self.encoded[self.tested(split)]
        own = side.sources.lengths
        found = {}
        for length in sorted(set(own.tolist() if lengths is None else lengths)):
            numbers = np.flatnonzero(own == length)[: count(length)]
            found[length] = [side.pair(int(number)) for number in numbers]
        if not any(found.values()):
            raise PairFileError(
                f"{self._paths[self.tested(split)] or 'validation'} has no source of lengths {lengths}"
            )
        return {length: pairs for length, pairs in found.items() if pairs}

    def tested(self, split: Split) -> Split:
        """See `Task.tested`: the validation pairs, where there is no test file."""
        return split if self._paths[split] is not None else "validation"

    def probe_pairs(self, lengths: Sequence[int]) -> list[Pair]:
        """See `Task.probe_pairs`."""
        side = self.encoded["validation"]
        own, found = side.sources.lengths, list[Pair]()
        for length in sorted(set(lengths)):
            nearest = np.argsort(np.abs(own - length), kind="stable")
            wanted = lengths.count(length)
            found += [side.pair(int(nearest[number % len(nearest)])) for number in range(wanted)]
        return found

    def answer(self, source: Ids) -> Ids | None:
        """See `Task.answer`: what the files say, if they can be read; the first of several targets.

        None for a source with unknown symbols: it may be any of several texts.
        """
        try:
            return first_target(self.encoded, source)
        except PairFileError:  # a run folder may have come here without them
            return None

    def spell(self, text: str) -> Ids:
        """See `Task.spell`; what the vocabulary does not have becomes UNK."""
        symbols = self.symbols(text)
        if not symbols:
            raise ValueError(f"source must have a symbol at least, but is {text!r}")
        return np.array(self.source_vocabulary.encode(symbols))

    def places(self, length: int) -> tuple[int, int]:
        """See `Task.places`; those of the longest pair, if its source is shorter."""
        source, target = self.state()["longest"]
        return min(length, source) + 2, target + 1

    def state(self) -> dict[str, Any]:
        """See `Task.state`."""
        if self._state is None:
            source, target = self.vocabularies
            longest = [
                max(int(part.lengths.max()) for part in parts)
                for parts in zip(*((side.sources, side.targets) for side in self.encoded.values()), strict=True)
            ]
            symbols = {"source": list(source.symbols), "target": list(target.symbols)}
            self._state = {**symbols, "longest": longest, "digest": self.lists.digest}
        return self._state

    def restore(self, state: dict[str, Any]) -> None:
        """See `Task.restore`; before anything was read."""
        assert not {"lists", "vocabularies", "encoded"} & vars(self).keys()
        self._state = state

    @property
    def digest(self) -> str:
        """See `Task.digest`."""
        return str(self.state()["digest"])

    def notes(self, lengths: range) -> list[str]:
        """See `Task.notes`: how many pairs there are, and what about them may make results look better or worse."""
        train, found = self.files["train"], list[str]()
        for name, file in self.files.items():
            found += pair_file.described(name, file, None if name == "train" else train)
        if "test" in self.files:
            both = pair_file.overlap(self.files["validation"], self.files["test"])[1]
            found += [f"test: WARNING: {counted(both, 'source')} in validation too"] if both else []
        for name, side in self.encoded.items():
            unknown = side.targets.unknown
            then = "never written" if name == "train" else "so that outputs without them are wrong"
            found += [f"{name}: {counted(unknown, 'symbol')} of targets unknown, {then}"] if unknown else []
        left = len(train.sources) - len(self._eligible(lengths))
        where = (
            f"sources are not {lengths.start} to {lengths.stop - 1} symbols long (data.min_length, data.max_length)"
        )
        found += [f"train: {counted(left, 'pair')} not learned from, whose {where}"] if left else []
        looks = looks_spaced(train.targets) if self.target_unit == "character" else ""
        if looks:
            found.append(f"targets look like symbols between spaces ({looks}): task.target_unit=word reads them so")
        source, target = self.vocabularies
        found.append(f"symbols: {len(source.symbols):,} of sources, {len(target.symbols):,} of targets")
        return found


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([EPOCH_STREAM, seed, epoch]).permutation(count)
