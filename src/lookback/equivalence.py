"""Do the lesson, our attention and torch's own agree, and does nothing leak? The checks that a reader can run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lookback import implementations as ways
from lookback.attention import Maps
from lookback.implementations import NOWHERE, Result, largest
from lookback.leaks import Probe, leaks
from lookback.peers import our_names

__all__ = ["Probe", "Row", "agreement", "leaks", "transformer_agreement"]

ALL = (torch.float64, torch.float32, torch.bfloat16)
WIDE = ways.NUMPY
NORMS: tuple[Literal["pre", "post"], ...] = ("pre", "post")
EPSILONS = 16  # roundings that may pile up; with twenty seeds, 6 were the most


@dataclass(frozen=True)
class Row:
    """How far two implementations are apart.

    Differences are the largest of all numbers; where values are above 1, as a share of the largest of them.

    Attributes:
        ours: the first of the two.
        against: the second.
        mask: its kind; of a whole model, where its norm stands, too.
        precision: of all numbers.
        output: difference of the outputs.
        weights: that of the attention weights; None where one of the two gives none.
        gradients: that of the gradients of all inputs and parameters; None where one of the two has none.
        tolerance: the difference that roundings explain, from the precision's epsilon.
    """

    ours: str
    against: str
    mask: str
    precision: str
    output: float
    weights: float | None
    gradients: float | None
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether all differences are numbers within the tolerance."""
        differences = (self.output, self.weights, self.gradients)
        return all(isfinite(found) and found <= self.tolerance for found in differences if found is not None)


@dataclass(frozen=True)
class Pair:
    """Two ways to compute the same, and what they are given.

    Attributes:
        given: mask and precision -> what both take.
        precisions: those that both know.
        skipped: kinds of masks that one of them is not made for.
    """

    ours: str
    our_way: Callable[[Any], Result]
    against: str
    their_way: Callable[[Any], Result]
    given: Callable[[Tensor | None, torch.dtype], Any] = ways.inputs
    precisions: tuple[torch.dtype, ...] = ALL
    skipped: tuple[str, ...] = ()


WITH_BIASES, WITHOUT = (partial(ways.layers, biases=biases) for biases in (True, False))
LAYER, TORCH_LAYER = "MultiHeadAttention", "nn.MultiheadAttention"
PAIRS = (
    Pair("attend", ways.formula, "lesson.py", ways.lesson_attention, precisions=WIDE),
    Pair("attend", ways.formula, "torch", ways.torch_attention),
    Pair("attend_fused", ways.fused, "attend", ways.formula),
    Pair("attend_short", ways.short, "attend", ways.formula, skipped=(NOWHERE,)),
    Pair(LAYER, ways.watched_layer, "lesson.py", ways.lesson_layer, WITHOUT, WIDE),
    Pair(LAYER, ways.watched_layer, TORCH_LAYER, ways.torch_layer, WITH_BIASES),
    Pair(f"{LAYER}, fused", ways.unwatched_layer, TORCH_LAYER, ways.torch_layer, WITH_BIASES),
)


def agreement() -> list[Row]:
    """Compare the implementations of one attention: every pair, kind of mask and precision."""
    with ways.same_numbers():
        return [row for pair in PAIRS for row in _compare(pair)]


def _compare(pair: Pair) -> Iterator[Row]:
    keys = ways.KEY if pair.given is ways.inputs else ways.QUERY
    for kind, mask in ways.mask_kinds(ways.QUERY, keys).items():
        for dtype in pair.precisions:
            if kind not in pair.skipped:
                given = pair.given(mask, dtype)
                found = pair.our_way(given), pair.their_way(given)
                yield _row(pair.ours, pair.against, kind, dtype, found)


def _row(ours: str, against: str, mask: str, dtype: torch.dtype, found: tuple[Result, Result]) -> Row:
    first, second = found
    weights = gradients = None
    if first.weights is not None and second.weights is not None:
        weights = _apart([first.weights], [second.weights])
    if first.gradients is not None and second.gradients is not None:
        gradients = _apart(first.gradients, second.gradients)
    differences = (_apart([first.output], [second.output]), weights, gradients)
    tolerance = EPSILONS * torch.finfo(dtype).eps
    return Row(ours, against, mask, str(dtype).removeprefix("torch."), *differences, tolerance)


def _apart(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """The largest difference, as a share of the largest value where that is above 1: roundings grow with it."""
    return largest(first, second) / max(1.0, largest(second))


def transformer_agreement() -> list[Row]:
    """Compare our Transformer with `nn.Transformer`, on sources with pads: logits and all gradients."""
    with ways.same_numbers():
        return [row for norm in NORMS for dtype in WIDE for row in _compare_transformers(norm, dtype)]


def _compare_transformers(norm: Literal["pre", "post"], dtype: torch.dtype) -> Iterator[Row]:
    ours, theirs = (model.to(dtype) for model in ways.transformers(norm))
    strings, kind = ways.strings(), f"pads, causal; {norm}-norm"
    pull = torch.randn(len(ways.LENGTHS), ways.TARGET, ways.TARGET_SYMBOLS, dtype=dtype)
    names = [name for name, _ in theirs.named_parameters()]
    expected = _pulled(theirs, theirs(*strings), pull, [[name] for name in names])
    maps: Maps = {}
    for name, asked in (("Transformer", maps), ("Transformer, fused", None)):
        found = _pulled(ours, ours(*strings, asked), pull, [our_names(name) for name in names])
        yield _row(name, "nn.Transformer", kind, dtype, (found, expected))


def _pulled(model: nn.Module, logits: Tensor, pull: Tensor, order: list[list[str]]) -> Result:
    """The logits, and the gradients of parameters, those whose names stand together in one piece."""
    parameters = dict(model.named_parameters())
    asked = [parameters.pop(name) for packed in order for name in packed]
    assert not parameters
    found = iter(torch.autograd.grad(logits, asked, pull, materialize_grads=True))
    return Result(logits, None, tuple(torch.cat([next(found) for _ in packed]) for packed in order))
