"""Trained runs that write targets for lines of text: one run, or several whose probabilities are averaged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lookback import experiment
from lookback.beam import beam_search
from lookback.data import batch_of
from lookback.decode import greedy
from lookback.models.base import Seq2Seq
from lookback.models.ensemble import Ensemble
from lookback.pair_file import counted
from lookback.tasks.base import Ids, Task
from lookback.tokens import EOS, UNK
from lookback.train import choose_device

CHUNK_LINES = 4096  # that are read before any is answered, so that lines of like length go together
LEAST_CAP = 100  # tokens that any output may have


@dataclass(frozen=True)
class Rules:
    """How targets are searched for.

    Attributes:
        beam: hypotheses kept at each step; 1 = the likeliest token at each step.
        count: how many targets are given for a line, the best first.
        length_penalty: as in `beam.normaliser`.
        batch_size: lines decoded together.
        max_symbols: an output is cut off there; None = see `Predictor.cap`.
    """

    beam: int = 1
    count: int = 1
    length_penalty: float = 1.0
    batch_size: int = 256
    max_symbols: int | None = None

    def __post_init__(self) -> None:
        """Check what no single value can show."""
        if self.count > self.beam:
            raise ValueError(f"nbest must not be above beam, but they are {self.count} and {self.beam}")


@dataclass(frozen=True)
class Written:
    """One target.

    Attributes:
        text: of the target.
        symbols: the same as symbols.
        score: None if it was not searched for.
        ended: it ended by itself.
        source: (source,), the ids that were read.
        ids: those that were written, EOS not among them.
    """

    text: str
    symbols: list[str]
    score: float | None
    ended: bool
    source: Ids
    ids: tuple[int, ...]


@dataclass
class Counts:
    """What a person should be warned of, counted over all lines.

    Attributes:
        lines: read so far.
        unknown: symbols that were read as unknown.
        unknown_lines: lines with such symbols.
        examples: some of these symbols.
        empty: lines with nothing to read.
        long: lines with more symbols than the model can take.
        cut_off: outputs that did not end by themselves.
        tabs: lines with a tab.
    """

    lines: int = 0
    unknown: int = 0
    unknown_lines: int = 0
    examples: list[str] = field(default_factory=list)
    empty: int = 0
    long: int = 0
    cut_off: int = 0
    tabs: int = 0

    def warnings(self) -> list[str]:
        """A line for each thing that happened."""
        shown, symbols = " ".join(map(repr, self.examples)), counted(self.unknown, "symbol")
        told = {
            f"{symbols} in {counted(self.unknown_lines, 'line')} read as unknown, such as {shown}": self.unknown,
            f"a tab in {counted(self.tabs, 'line')}: a line is a source alone (evaluate.py reads pairs)": self.tabs,
            f"nothing to read in {counted(self.empty, 'line')}; the output is empty there": self.empty,
            f"{counted(self.long, 'line')} longer than the model can read; the output is empty there": self.long,
            f"{counted(self.cut_off, 'output')} did not end, cut off": self.cut_off,
        }
        return [line for line, happened in told.items() if happened]


class Predictor:
    """One run or several, ready to predict; they need nothing but their folders.

    Args:
        folders: of the runs.
        device: as in `TrainSettings.device`.

    Attributes:
        task: of the runs, for its vocabularies.
        model: the run's, or all of them together.

    Raises:
        CheckpointError: if a run cannot be read.
        ValueError: if runs differ in their symbols.
    """

    SHOWN = 5  # unknown symbols in the warning

    def __init__(self, folders: Sequence[Path], device: str = "auto") -> None:
        loaded = [experiment.load(folder) for folder in folders]
        self.task, first = loaded[0]
        for (task, _), folder in zip(loaded, folders, strict=True):
            if _symbols(task) != _symbols(self.task):
                rule = "runs that predict together must have the same symbols, in the same order, and units"
                both = _difference(_symbols(task), _symbols(self.task))
                raise ValueError(f"{rule}, but {folder} differs from {folders[0]}: {both}")
        models = [model for _, model in loaded]
        self.model: Seq2Seq = Ensemble(models) if len(models) > 1 else first
        self.device = choose_device(device)
        self.model.to(self.device).eval()
        self.counts = Counts()

    def write(self, texts: Iterable[str], rules: Rules) -> Iterator[list[Written]]:
        """The targets of each text, in the order of the texts; none for a text that cannot be read."""
        texts = iter(texts)
        while chunk := list(islice(texts, 1 if rules.batch_size == 1 else max(CHUNK_LINES, rules.batch_size))):
            yield from self._chunk(chunk, rules)

    def _read(self, text: str) -> Ids:
        """The ids of a text; what is wrong with it is counted."""
        symbols = self.task.symbols(text)
        ids = np.array(self.task.source_vocabulary.encode(symbols), dtype=np.int64)
        counts = self.counts
        counts.lines += 1
        unknown = [symbol for symbol, number in zip(symbols, ids.tolist(), strict=True) if number == UNK]
        counts.unknown += len(unknown)
        counts.unknown_lines += bool(unknown)
        for symbol in unknown:
            if symbol not in counts.examples and len(counts.examples) < self.SHOWN:
                counts.examples.append(symbol)
        counts.empty += not symbols
        counts.tabs += "\t" in text
        if self.model.max_length is not None and len(ids) + 2 > self.model.max_length:
            counts.long += 1
            return ids[:0]
        return ids

    def _chunk(self, texts: Sequence[str], rules: Rules) -> list[list[Written]]:
        sources = [self._read(text) for text in texts]
        found: list[list[Written]] = [[] for _ in texts]
        order = sorted((at for at, source in enumerate(sources) if len(source)), key=lambda at: len(sources[at]))
        for cap, rows in groupby(
            order, lambda at: rules.max_symbols + 1 if rules.max_symbols else self.cap(len(sources[at]))
        ):
            alike = list(rows)
            for start in range(0, len(alike), rules.batch_size):
                part = alike[start : start + rules.batch_size]
                for at, written in zip(part, self._batch([sources[at] for at in part], cap, rules), strict=True):
                    found[at] = written
                    self.counts.cut_off += not written[0].ended
        return found

    def cap(self, length: int) -> int:
        """Where an output is cut off: a power of two, at least four times what a source of this length may need.

        It depends on no other line, and few lengths have a cap of their own, so that many lines go together.
        """
        needed = 4 * self.task.places(length)[1]
        return max(LEAST_CAP, 1 << (needed - 1).bit_length())

    def _batch(self, sources: Sequence[Ids], cap: int, rules: Rules) -> list[list[Written]]:
        batch = batch_of([(source, source[:0]) for source in sources]).to(self.device)
        with torch.inference_mode():
            if rules.beam == 1:
                decoded = greedy(self.model, batch.source, batch.source_lengths, cap)
                rows = zip(sources, decoded.tokens.tolist(), strict=True)
                return [[self._greedy(source, row, rules)] for source, row in rows]
            found = beam_search(
                self.model,
                batch.source,
                batch.source_lengths,
                cap,
                size=rules.beam,
                length_penalty=rules.length_penalty,
                count=rules.count,
            )
        rows = zip(sources, found, strict=True)
        return [
            [self._written(source, one.tokens[: rules.max_symbols], one.score, one.ended) for one in row]
            for source, row in rows
        ]

    def _greedy(self, source: Ids, row: list[int], rules: Rules) -> Written:
        ended = EOS in row
        return self._written(source, row[: row.index(EOS)] if ended else row[: rules.max_symbols], None, ended)

    def _written(self, source: Ids, ids: Sequence[int], score: float | None, ended: bool) -> Written:
        symbols = self.task.target_vocabulary.decode(ids)
        return Written(self.task.written(symbols), symbols, score, ended, source, tuple(ids))


def _symbols(task: Task) -> dict[str, Any]:
    """What runs that predict together must have in common, by name."""
    return {
        "symbols of sources": list(task.source_vocabulary.symbols),
        "symbols of targets": list(task.target_vocabulary.symbols),
        "task.source_unit": task.source_unit,
        "task.target_unit": task.target_unit,
        "task.normalise": task.normalise,
        "the task": type(task).__name__,
    }


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """In what two runs differ, in a few words; units first, since other symbols follow from them."""
    names = [name for name in one if one[name] != other[name]]
    name = sorted(names, key=lambda name: isinstance(one[name], list))[0]
    first, second = one[name], other[name]
    if not isinstance(first, list):
        return f"{name} is {first}, not {second}"
    only = [symbol for symbol in first if symbol not in second] + [s for s in second if s not in first]
    return f"{name}: {only[0]!r} is in one of them" if only else f"{name} are in another order"
