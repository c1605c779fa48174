"""Strings on which a model is watched: what it reads, what it writes, and the maps of both."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.alignment import NOWHERE, right_cells
from lookback.attention import Maps
from lookback.data import Batch, batch_of
from lookback.decode import evaluating, greedy
from lookback.evaluate import Example, example
from lookback.figures import Panel
from lookback.models.base import Seq2Seq
from lookback.symbols import Unit, join
from lookback.tasks.base import Ids, Task
from lookback.tokens import BOS, EOS

AXES = {
    "encoder_self": ("symbol that looks", "symbol looked at"),
    "decoder_self": ("symbol being written", "symbol written before"),
    "cross": ("symbol being written", "symbol of the source"),
}

PlaceMaps = dict[str, NDArray[np.float32]]
"""The maps of one string: place, such as `cross/layer0` -> (heads, query, key)."""


def kind(place: str) -> str:
    """Whose attention a place is of: `encoder_self`, `decoder_self` or `cross`."""
    return place.partition("/")[0]


@dataclass(frozen=True)
class Probe:
    """One string, and what is written for it, ready to be watched by teacher forcing.

    Attributes:
        batch: the two, alone in a batch, so that no map has pads.
        read: the symbols of the source, marks included.
        written: the symbols that are written, EOS included; row t of a map belongs to the t-th.
        right: (rows,), the right cell of each row of a cross-attention map; NOWHERE where there is none.
        unit: what a symbol of the source is in a text.
    """

    batch: Batch
    read: list[str]
    written: list[str]
    right: Ids
    unit: Unit = "character"

    def watch(self, model: Seq2Seq) -> PlaceMaps:
        """Run the model on the probe."""
        maps: Maps = {}
        batch = self.batch.to(next(model.parameters()).device)
        with evaluating(model):
            model(batch.source, batch.source_lengths, batch.decoder_input, maps)
        return {place: weights[0].float().cpu().numpy() for place, weights in maps.items()}

    def panel(self, place: str, title: str | None = None) -> Panel:
        """The frame for a map of this place; its title is the source if no other is given."""
        rows, columns = {
            "encoder_self": (self.read, self.read),
            "decoder_self": (self.written, ["<bos>", *self.written[:-1]]),
            "cross": (self.written, self.read),
        }[kind(place)]
        outlined = self.cells() if kind(place) == "cross" else []
        title = join(self.read[1:-1], self.unit) if title is None else title
        return Panel(title, rows, columns, *AXES[kind(place)], outlined)

    def cells(self) -> list[tuple[int, int]]:
        """The right cells of a cross-attention map: (row, column)."""
        return [(row, int(column)) for row, column in enumerate(self.right) if column != NOWHERE]


def make_probe(task: Task, source: Ids, written: Ids | None = None, *, ended: bool = True) -> Probe:
    """A probe on which the decoder is given the right answer, or something else.

    Args:
        task: names the symbols, and knows the right answer and its alignment.
        source: (source,), ids without marks.
        written: (target,), ids without marks; the right answer if left out.
        ended: whether an EOS follows them.

    Raises:
        ValueError: if nothing is given and nobody knows the answer.
    """
    answer = task.known_answer(source) if written is None else task.answer(source)
    batch = batch_of([(source, source[:0] if answer is None else answer)])
    right = right_cells(task, batch)[0].numpy()
    if written is not None:
        target = np.array([BOS, *written, *([EOS] if ended else [])])
        batch = Batch(batch.source, batch.source_lengths, torch.from_numpy(target)[None])
        rows = len(target) - 1
        right = np.pad(right[:rows], (0, max(0, rows - len(right))), constant_values=NOWHERE)
    read, labels = (row[0].tolist() for row in (batch.source, batch.labels))
    names = task.source_vocabulary.decode(read), task.target_vocabulary.decode(labels)
    return Probe(batch, *names, right, task.source_unit)


def validation_probe(task: Task, length: int) -> Probe:
    """A validation string of this length, with its right answer."""
    [(source, target)] = task.probe_pairs([length])
    return make_probe(task, source, target)


def heads_panels(probe: Probe, place: str, heads: Iterable[int]) -> list[Panel]:
    """The frames of a contact sheet: the heads of one place on one string."""
    return [probe.panel(place, f"head {head}") for head in heads]


@dataclass(frozen=True)
class Look:
    """What a model writes for a string at one step of its training, and where it looks while it does.

    Attributes:
        step: updates done.
        example: what it read, should write, and wrote.
        probe: the string with what it wrote.
        maps: of the probe.
    """

    step: int
    example: Example
    probe: Probe
    maps: PlaceMaps


@dataclass(frozen=True)
class Story:
    """One run on the page.

    Attributes:
        name: such as `transformer seed 0`.
        looks: in the order of training steps, at least one; all have the same places and heads.
        shown: which look is seen at first, counted as in a list.

    Raises:
        ValueError: if there is no look, or looks differ in their places or heads.
    """

    name: str
    looks: Sequence[Look]
    shown: int = -1

    def __post_init__(self) -> None:
        heads = [{place: len(maps) for place, maps in look.maps.items()} for look in self.looks]
        if not heads:
            raise ValueError(f"looks of {self.name!r} must be at least one, but there are none")
        if any(found != heads[0] for found in heads):
            raise ValueError(f"looks of {self.name!r} must have the same places and heads, but have {heads}")


def look(model: Seq2Seq, task: Task, source: Ids, step: int, extra_tokens: int) -> Look:
    """Let a model write freely, and then watch it on what it wrote.

    Watching by teacher forcing shows the very weights of free-running decoding: both read the same symbols.

    Args:
        model: any model.
        task: names the symbols.
        source: (source,), ids without marks.
        step: updates done, for the record.
        extra_tokens: as in `EvaluateSettings`.
    """
    answer = task.answer(source)
    batch = batch_of([(source, source[:0] if answer is None else answer)]).to(next(model.parameters()).device)
    most = task.places(len(source))[1] if answer is None else batch.labels.shape[1]
    decoded = greedy(model, batch.source, batch.source_lengths, most + extra_tokens)
    wrote, ended = decoded.tokens[0].cpu().numpy(), bool(decoded.ended[0])
    probe = make_probe(task, source, wrote[:-1] if ended else wrote, ended=ended)
    text = replace(example(task, batch, decoded.tokens, 0), known=answer is not None)
    return Look(step, text, probe, probe.watch(model))
