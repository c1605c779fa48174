"""Attention done wrong on purpose, in the ways that are often seen: what somebody's result is compared with.

Attention is taken apart into steps. Each step can be done in several ways; the first is the right one, and the
others have a sentence that says what is wrong with them, unless they are as right.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lookback.lesson import Array, softmax

Mask = NDArray[np.bool_]
HIDDEN = -1e9  # a score that leaves no weight


class Fault(NamedTuple):
    """What is wrong, and what to do: sentences whose {names} are filled in with numbers."""

    what: str
    hint: str


class Way(NamedTuple):
    """One way to do a step."""

    do: Callable[..., Array]
    fault: Fault | None = None


@dataclass(frozen=True)
class Case:
    """What somebody's attention is given, and what it should make of it.

    Attributes:
        inputs: the arrays to pass: Q, K, V, or the tokens.
        query: (..., query, d_k), already projected.
        key: (..., key, d_k).
        value: (..., key, d_v).
        sizes: by name, such as d_model: what scores may have been divided by in place of d_k.
        heads: how many share the width; 0 = there is no axis of heads.
        output: (d_model, d_model), the last projection of several heads.
    """

    inputs: tuple[Array, ...]
    query: Array
    key: Array
    value: Array
    sizes: Mapping[str, int]
    heads: int = 0
    output: Array | None = None

    @property
    def d_k(self) -> int:
        """Width of the queries of one head."""
        width: int = self.query.shape[-1]
        return width // max(1, self.heads)


class Seen(NamedTuple):
    """What somebody's attention gave back; None = it did not."""

    output: Array | None
    weights: Array | None


@dataclass(frozen=True)
class Steps:
    """How the steps are done.

    Attributes:
        split: (..., token, width), number of heads -> (..., heads, token, share of the width).
        product: queries, keys -> scores.
        scale: scores -> scores.
        normalise: scores -> weights.
        hide: scores, mask and `normalise` -> weights.
        join: what `split` made -> as it was.
        project: joined heads, matrix -> output.
    """

    split: Way
    product: Way
    scale: Way
    normalise: Way
    join: Way
    project: Way
    hide: Way

    @classmethod
    def right(cls, case: Case) -> "Steps":
        """All steps as they should be."""
        scale = Way(lambda scores: scores / np.sqrt(case.d_k))
        return cls(SPLIT[0], PRODUCT[0], scale, NORMALISE[0], JOIN[0], PROJECT[0], HIDE[0])

    @property
    def faults(self) -> list[Fault]:
        """Those of all steps, in the order of the steps."""
        steps = (self.split, self.product, self.scale, self.normalise, self.hide, self.join, self.project)
        return [way.fault for way in steps if way.fault is not None]

    def run(self, case: Case, mask: Mask | None = None) -> Seen:
        """What attention that is done so gives.

        Raises:
            ValueError: if the arrays do not fit together that way.
        """
        query, key, value = case.query, case.key, case.value
        if case.heads:
            query, key, value = (self.split.do(part, case.heads) for part in (query, key, value))
        scores: Array = self.scale.do(self.product.do(query, key))
        weights: Array = (
            self.normalise.do(scores) if mask is None else self.hide.do(scores, mask, self.normalise.do)
        )
        output: Array = weights @ value
        if case.heads:
            output = self.project.do(self.join.do(output), case.output)
        return Seen(output, weights)


Axes = int | tuple[int, ...] | None


def _softmax(sums: Axes, *, maxima: Axes = -1, keep: bool = True) -> Callable[[Array], Array]:
    """exp(scores - maximum) / sum, each over the axes that are named; None = all."""

    def normalise(scores: Array) -> Array:
        e = np.exp(scores - scores.max(axis=maxima, keepdims=True))
        weights: Array = e / e.sum(axis=sums, keepdims=keep)
        return weights

    return normalise


SHARE = "each query (row) shares out 1 among the keys: max and sum with axis=-1, keepdims=True"
COLUMNS = Fault(
    "softmax runs over the wrong axis: each column sums to 1, and the first row to {row_sum:.2f}", SHARE
)
WHOLE = Fault("softmax runs over the whole array: all of it sums to 1, and the first row to {row_sum:.2f}", SHARE)
BY_HEADS = Fault("softmax runs over the wrong axis, that of the heads: the first row sums to {row_sum:.2f}", SHARE)
KEEP = Fault(
    "each column is divided by the sum of a row: the first row sums to {row_sum:.2f}, not to 1",
    "sum with keepdims=True, so that each row is divided by its own sum",
)
SUMMED = "the sum in softmax runs over {}: the first row sums to {{row_sum:.2f}}, not to 1"
NORMALISE = (
    Way(softmax),
    Way(_softmax(-2, maxima=-2), COLUMNS),
    Way(_softmax(None, maxima=None), WHOLE),
    Way(_softmax(-3, maxima=-3), BY_HEADS),
    Way(_softmax(-2), Fault(SUMMED.format("the wrong axis"), SHARE)),
    Way(_softmax(None), Fault(SUMMED.format("the whole array"), SHARE)),
    Way(_softmax(-3), Fault(SUMMED.format("the wrong axis, that of the heads"), SHARE)),
    Way(_softmax(-1, keep=False), KEEP),
    Way(_softmax(-1, maxima=None, keep=False), KEEP),
    Way(
        lambda scores: np.exp(scores - scores.max(axis=-1, keepdims=True)),
        Fault(
            "the weights are not normalised: the first row sums to {row_sum:.2f}, not to 1",
            "divide exp(x) by its own sum, with axis=-1, keepdims=True",
        ),
    ),
    Way(
        np.exp,
        Fault(
            "the weights are not normalised: the first row sums to {row_sum:.2f}, not to 1",
            "divide exp(x) by its own sum, with axis=-1, keepdims=True",
        ),
    ),
    Way(
        lambda scores: scores / scores.sum(axis=-1, keepdims=True),
        Fault(
            "the weights are scores divided by their sum, without exp: the first is {first:.2f}",
            "exp comes first, so that every weight is above 0",
        ),
    ),
    Way(
        lambda scores: scores,
        Fault("there is no softmax: the weights are the scores themselves", "weights = softmax(scores)"),
    ),
)


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-3, -2)


def _split_mixed(x: Array, heads: int) -> Array:
    *batch, tokens, width = x.shape
    return x.reshape(*batch, heads, tokens, width // heads)


def _split_strided(x: Array, heads: int) -> Array:
    """Head h has every heads-th column, from h on: another order of the same columns, and no fault."""
    return np.moveaxis(x.reshape(*x.shape[:-1], -1, heads), -1, -3)


def _join(x: Array) -> Array:
    *batch, heads, tokens, width = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, tokens, heads * width)


def _join_mixed(x: Array) -> Array:
    *batch, heads, tokens, width = x.shape
    return x.reshape(*batch, tokens, heads * width)


def _join_strided(x: Array) -> Array:
    *batch, heads, tokens, width = x.shape
    return np.moveaxis(x, -3, -1).reshape(*batch, tokens, heads * width)


SPLIT = (
    Way(_split),
    Way(_split_strided),
    Way(
        _split_mixed,
        Fault(
            "the heads are mixed: a head gets whole tokens in place of its share of every token",
            "reshape to (batch, tokens, heads, d_k) first, then swap tokens and heads",
        ),
    ),
)
JOIN = (
    Way(_join),
    Way(_join_strided),
    Way(
        _join_mixed,
        Fault(
            "the heads are mixed when they are joined: their axis is not swapped back before the reshape",
            "swap heads and tokens back, then reshape to (batch, tokens, d_model)",
        ),
    ),
)
PRODUCT = (
    Way(lambda query, key: query @ key.swapaxes(-1, -2)),
    Way(
        lambda query, key: key @ query.swapaxes(-1, -2),
        Fault("queries and keys are exchanged: the scores are K Q^T", "scores = Q K^T: a row is a query"),
    ),
)
PROJECT = (
    Way(lambda joined, output: joined @ output),
    Way(
        lambda joined, output: joined,
        Fault("the last projection is missing: the output is the joined heads", "multiply by Wo"),
    ),
)
SENSE = "True = may look, as in np.where(mask, scores, -1e9)"
HIDE = (
    Way(lambda scores, mask, normalise: normalise(np.where(mask, scores, HIDDEN))),
    Way(
        lambda scores, mask, normalise: normalise(np.where(mask, HIDDEN, scores)),
        Fault("the sense of the mask is turned: what may be looked at is hidden, and the rest seen", SENSE),
    ),
    Way(
        lambda scores, mask, normalise: normalise(scores),
        Fault("the mask does nothing: the weights are those without it", SENSE),
    ),
    Way(
        lambda scores, mask, normalise: normalise(np.where(mask, scores, 0)),
        Fault("hidden scores are set to 0, which exp makes 1", "set them to -1e9 or -inf before softmax"),
    ),
    Way(
        lambda scores, mask, normalise: normalise(scores) * mask,
        Fault(
            "the mask comes after softmax: the first row sums to {row_sum:.2f}, not to 1",
            "hide the scores before softmax, so that the rest still sums to 1",
        ),
    ),
)
