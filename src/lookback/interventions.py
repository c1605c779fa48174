"""What if a head did not look, or looked at the right cell? A trained model, questioned; nothing is trained here.

An intervention puts other weights in the place of those that a head has worked out, and the model then writes
freely as always. What that shows, and what it does not, says `MEANING`.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lookback.alignment import NOWHERE, right_cells
from lookback.attention import AttentionLayer, Change
from lookback.by_length import batches, pairs_of
from lookback.data import Batch, batch_of
from lookback.decode import greedy
from lookback.evaluate import EvaluateSettings
from lookback.metrics import score
from lookback.models.base import Seq2Seq
from lookback.tasks.base import Task

MEANING = (
    "A fall in exact match shows that the rest of this model relies on what the head hands on.\n"
    "No fall does not show that the head is idle: other heads may stand in for it.\n"
    "How far it falls is no measure of the head's work: the rest was never trained with the change.\n"
    "Forcing shows each output the right place of the source (EOS has none). If exact match rises, looking is\n"
    "what failed; if it does not, what failed comes after looking, or the model keeps its symbols elsewhere.\n"
)


def layers(model: Seq2Seq) -> dict[str, AttentionLayer]:
    """The attention layers of a model by the place of their maps, in the model's order; none for the plain RNN."""
    return {module.place: module for module in model.modules() if isinstance(module, AttentionLayer)}


def each_head(model: Seq2Seq) -> list[tuple[str, int]]:
    """Every head as (place, number), in the model's order: what a table goes through that ablates each in turn."""
    return [(place, head) for place, layer in layers(model).items() for head in range(layer.num_heads)]


def head_name(place: str, head: int) -> str:
    """As in the tags of the board: `cross/layer0/head1`."""
    return f"{place}/head{head}"


def parse_head(model: Seq2Seq, text: str) -> tuple[str, int]:
    """Find a head by its name.

    Args:
        model: whose head it is.
        text: such as `cross/layer1/head0`.

    Returns:
        place and number, such as (`cross/layer1`, 0).

    Raises:
        ValueError: if the model has no such head; the message lists those that it has.
    """
    named = {head_name(*head): head for head in each_head(model)}
    if text not in named:
        known = ", ".join(
            head_name(place, 0) + (f" to head{layer.num_heads - 1}" if layer.num_heads > 1 else "")
            for place, layer in layers(model).items()
        )
        rule = f"must be one that the model has ({known or 'it has no attention, so none'})"
        raise ValueError(f"head {rule}, but is {text!r}")
    return named[text]


def uniform(heads: Collection[int]) -> Change:
    """These heads look at every key that they may look at alike: what they choose no longer counts.

    Padding and the future stay hidden, and a row that may look nowhere still does not.
    """
    chosen = sorted(heads)

    def change(weights: Tensor, mask: Tensor | None) -> Tensor:
        allowed = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand_as(weights)
        allowed = allowed[:, chosen]
        level = allowed.to(weights.dtype) / allowed.sum(dim=-1, keepdim=True).clamp(min=1)
        return _replaced(weights, chosen, level)

    return change


def zero(heads: Collection[int]) -> Change:
    """These heads have weight 0 everywhere, so that they hand on nothing at all."""
    chosen = sorted(heads)

    def change(weights: Tensor, mask: Tensor | None) -> Tensor:
        return _replaced(weights, chosen, torch.zeros_like(weights[:, chosen]))

    return change


class Force:
    """These heads look at the right cell alone, in each row that has one; other rows stay as they are.

    It is made for one pass over one batch. It counts the rows that it has seen, so that the pass may also be one in
    steps; rows past the end of the table stay as they are. A second pass needs a new one.

    Args:
        right: (batch, target), the column of each row's right cell; NOWHERE where there is none.
        heads: numbers of the heads.
    """

    def __init__(self, right: Tensor, heads: Collection[int]) -> None:
        self.right = right
        self.heads = sorted(heads)
        self.seen = 0

    def __call__(self, weights: Tensor, mask: Tensor | None) -> Tensor:
        """See `Change`.

        Raises:
            ValueError: if the weights are of a batch of another size.
        """
        if len(weights) != len(self.right):
            raise ValueError(
                "right cells must be of the batch that the model reads, "
                f"but they are of {len(self.right)} strings and the batch has {len(weights)}"
            )
        right = self.right[:, self.seen : self.seen + weights.shape[2]].to(weights.device)
        self.seen += weights.shape[2]
        right = F.pad(right, (0, weights.shape[2] - right.shape[1]), value=NOWHERE)[:, None, :, None]
        known = right != NOWHERE  # (batch, heads=1, query, key=1)
        there = torch.arange(weights.shape[3], device=weights.device) == right  # (batch, heads=1, query, key)
        own = weights[:, self.heads]
        return _replaced(weights, self.heads, torch.where(known, there.to(weights.dtype), own))


def _replaced(weights: Tensor, heads: list[int], new: Tensor) -> Tensor:
    """A copy of the weights in which these heads have new ones: (batch, heads, query, key) both."""
    changed = weights.clone()
    changed[:, heads] = new
    return changed


@contextmanager
def changed(model: Seq2Seq, changes: Mapping[str, Change]) -> Iterator[None]:
    """Inside, layers use the weights that a change makes of theirs; it is taken back afterwards, whatever happens.

    Args:
        model: any model.
        changes: place -> what happens to that layer's weights.

    Raises:
        ValueError: if the model has no such layer, or the layer is changed already.
    """
    known = layers(model)
    for place in changes:
        if place not in known:
            rule = f"must be one that the model has ({', '.join(known) or 'it has no attention, so none'})"
            raise ValueError(f"place {rule}, but is {place!r}")
        if known[place].change is not None:
            raise ValueError(
                f"place must not be changed already, but {place} is: a layer takes one change at a time"
            )
    try:
        for place, change in changes.items():
            known[place].change = change
        yield
    finally:
        for place in changes:
            known[place].change = None


@dataclass(frozen=True)
class Intervention:
    """One question to a model.

    Attributes:
        kind: `uniform`, `zero` or `force`: see the functions and the class of these names.
        heads: whose weights are changed, as (place, number).

    Raises:
        ValueError: if there is no head, or one without right cells is to be forced.
    """

    kind: Literal["uniform", "zero", "force"]
    heads: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        """Check what no single value can show."""
        if not self.heads:
            raise ValueError("heads must be at least one, but there are none")
        for place, head in self.heads:
            if self.kind == "force" and not place.startswith("cross/"):
                rule = "must be of cross-attention to be forced, for no other map has right cells"
                raise ValueError(f"head {rule}, but is {head_name(place, head)}")

    @property
    def name(self) -> str:
        """For tables: `uniform cross/layer1/head0`; several heads of a place are `cross/layer1/head0+2`."""
        places: dict[str, list[str]] = {}
        for place, head in self.heads:
            places.setdefault(place, []).append(str(head))
        return f"{self.kind} " + " + ".join(f"{place}/head{'+'.join(heads)}" for place, heads in places.items())

    def changes(self, right: Tensor) -> dict[str, Change]:
        """The change of each place, for one pass over one batch.

        Args:
            right: (batch, target), as in `Force`.
        """
        places: dict[str, set[int]] = {}
        for place, head in self.heads:
            places.setdefault(place, set()).add(head)
        return {place: self._change(right, heads) for place, heads in places.items()}

    def _change(self, right: Tensor, heads: Collection[int]) -> Change:
        match self.kind:
            case "uniform":
                return uniform(heads)
            case "zero":
                return zero(heads)
            case "force":
                return Force(right, heads)


def exact_match_by_length(
    model: Seq2Seq, task: Task, settings: EvaluateSettings, intervention: Intervention | None
) -> dict[int, float]:
    """Share of held-out strings that are written exactly, EOS included, decoded freely: length -> share.

    Strings and batches are those of `evaluate_length`, so that without an intervention its `exact_match` comes out.

    Args:
        model: any model, on any device.
        task: gives strings and answers.
        settings: which strings, of which lengths, how many.
        intervention: None = the model as it is.

    Raises:
        ValueError: if the model has no such head, or the task does not know the cells to be forced.
    """
    for place, head in intervention.heads if intervention else ():
        parse_head(model, head_name(place, head))
    return {length: _exact_match(model, task, settings, length, intervention) for length in settings.lengths or ()}


def _exact_match(
    model: Seq2Seq, task: Task, settings: EvaluateSettings, length: int, intervention: Intervention | None
) -> float:
    device = next(model.parameters()).device
    pairs = pairs_of(task, settings, length)
    found = []
    for part in batches([source for source, _ in pairs]):
        batch = batch_of(pairs[part])
        changes = intervention.changes(_known_cells(task, batch, intervention.kind)) if intervention else {}
        batch = batch.to(device)
        cap = batch.labels.shape[1] + settings.extra_tokens
        with changed(model, changes):
            decoded = greedy(model, batch.source, batch.source_lengths, cap, keep_all=True)
        found.append(score(decoded.tokens, batch.labels).exact_match)
    return torch.cat(found).double().mean().item()


def _known_cells(task: Task, batch: Batch, kind: str) -> Tensor:
    """The right cells of a batch on the CPU, refused if there are none where they are needed."""
    right = right_cells(task, batch)
    if kind == "force" and bool((right == NOWHERE).all()):
        raise ValueError(f"task must know the right cells to be forced, but {type(task).__name__} knows none")
    return right
