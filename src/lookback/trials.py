"""Ways to try somebody's attention: what to call, with which small arrays, and what should come of it.

Sizes are pairwise distinct, so that an axis taken for another shows in a shape.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from lookback.faults import Case, Fault, Mask, Seen, Steps
from lookback.lesson import Array
from lookback.student_file import NotFiniteError, TroubleError, call, caught, numbers

BATCH, HEADS, QUERIES, KEYS, D_K, D_V = 2, 3, 5, 7, 4, 6
WIDTH = 8  # d_model of one head of self-attention
D_MODEL = HEADS * D_K
LARGE = 20_000.0  # a score whose exp overflows, whatever it is divided by
HIGHEST = 730.0  # exp of more than 710 overflows; of less than -745 it is 0
TRIED = 1000


def normal(*shape: int) -> Array:
    """Random numbers around 1; the same each time for the same shape."""
    return np.random.default_rng(shape).normal(size=shape)


class Answer(NamedTuple):
    """What came back of a trial, what is wrong with how it did, and what there is to say beside."""

    seen: Seen
    wrong: list[Fault]
    notes: list[str]


@dataclass(frozen=True)
class Trial:
    """One way to call somebody's attention.

    Attributes:
        module: their file.
        function: what is called.
        cases: what is passed, with what should be made of it; several, where several readings are as right.
        large: what is passed to make all scores very large.
        notes: what there is to say of theirs, if it is right.
    """

    module: ModuleType
    function: Callable[..., Any]
    cases: Sequence[Case]
    large: tuple[Array, ...]
    notes: tuple[str, ...] = ()

    def ask(self, inputs: Sequence[Array], mask: Array | Mask | None = None) -> Answer:
        """Call it, and take apart what comes back.

        Raises:
            TroubleError: if nothing comes back that could be judged.
        """
        keyword = {} if mask is None else {str(mask_keyword(self.function)): mask}
        expected = Steps.right(self.cases[0]).run(self.cases[0])
        assert expected.output is not None
        assert expected.weights is not None
        result = call(self.module, self.function, *inputs, **keyword)
        with caught(str(self.module.__file__)):
            return read(result, expected.output.shape, expected.weights.shape)


def mask_keyword(function: Callable[..., Any]) -> str | None:
    """The name of a parameter for a mask, if there is one."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return next((name for name in names if "mask" in name.lower()), None)


def axis_keyword(function: Callable[..., Any]) -> dict[str, int]:
    """The last axis, for a softmax that has to be told which."""
    try:
        wanted = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    told = [name for name in ("axis", "dim") if name in wanted]
    return {name: -1 for name in told if wanted[name].default in (None, inspect.Parameter.empty)}


NAMES = ("output", "weights")


def read(result: object, *shapes: tuple[int, ...]) -> Answer:
    """Output and weights of what somebody's attention gave back; what follows them is not looked at.

    Args:
        result: what came back.
        shapes: those that output and weights should have.

    Raises:
        TroubleError: if neither is there.
    """
    hint = "end with return output, weights"
    if result is None:
        raise TroubleError("returns nothing", hint, called=True)
    members: list[object] = _members(result, shapes)
    parts = [numbers(part) for part in members[:2]]
    found = [part.shape for part in parts]
    more = f"{len(members) - 2} more" if len(members) > 2 else ""
    notes = [f"returns {more} beside output and weights, which is not looked at"] if more else []
    if found == list(shapes):
        return Answer(Seen(*parts), [], notes)
    if found == list(reversed(shapes)):
        fault = Fault(f"returns weights {found[0]} first, then the output {found[1]}: the order is turned", hint)
        return Answer(Seen(parts[1], parts[0]), [fault], notes)
    if len(parts) == 1 and found[0] in shapes:
        place = shapes.index(found[0])
        fault = Fault(f"returns only the {NAMES[place]}, {found[0]}, and not the {NAMES[1 - place]}", hint)
        return Answer(Seen(parts[0], None) if place == 0 else Seen(None, parts[0]), [fault], notes)
    told = " and ".join([*map(str, found), *filter(None, [more])])
    wanted = f"output {shapes[0]} and weights {shapes[1]}"
    misfit = f"returns {'shape' if len(found) == 1 else 'shapes'} {told}, but should return {wanted}"
    if len(parts) == 2 and found[0] == shapes[0]:
        fault = Fault(misfit, "one row of weights for each query, one map for each head")
        return Answer(Seen(parts[0], None), [fault], notes)
    if len(parts) == 2 and found[1] == shapes[1]:
        return Answer(Seen(None, parts[1]), [Fault(misfit, "output = weights @ V")], notes)
    raise TroubleError(misfit, hint, called=True)


def _members(result: object, shapes: Sequence[tuple[int, ...]]) -> list[object]:
    """What somebody's attention gave back, one by one: a list may be several arrays, or be one."""
    if isinstance(result, tuple):
        return list(result)
    if isinstance(result, list) and _shape(result) not in shapes:
        parts = [_shape(part) for part in result]
        if any(shape in shapes for shape in parts) or len(set(parts)) == len(parts) == 2:
            return result
    return [result]


def _shape(part: object) -> tuple[int, ...] | None:
    """That of an array, or of lists that could be one."""
    try:
        return numbers(part).shape
    except NotFiniteError:
        return np.asarray(part).shape
    except TroubleError:
        return None


def attention_trials(module: ModuleType, function: Callable[..., Any]) -> Iterator[Trial]:
    """Q, K and V as matrices, as in the second lesson; or with more axes in front."""
    fronts = {
        (): "",
        (BATCH,): "takes arrays with a batch in front, as in the first lesson",
        (BATCH, HEADS): "takes arrays with batch and heads in front",
    }
    unmasked = "" if mask_keyword(function) else "has no mask"
    sizes = {"d_v": D_V, "number of keys": KEYS, "number of queries": QUERIES}
    for front, note in fronts.items():
        query, key, value = (normal(*front, *shape) for shape in ((QUERIES, D_K), (KEYS, D_K), (KEYS, D_V)))
        far = [part.copy() for part in (query, key)]
        for part in far:
            part[..., 0] = np.sqrt(LARGE)
        case = Case((query, key, value), query, key, value, sizes)
        notes = tuple(filter(None, (note, unmasked)))
        yield Trial(module, function, [case], (*far, value), notes)


def layer_trials(module: ModuleType, kind: Callable[..., Any]) -> Iterator[Trial]:
    """One head of self-attention: tokens as a matrix, or with a batch in front."""
    layer = made(module, kind, [(WIDTH, D_K, D_V), (WIDTH, D_K), (WIDTH,)])
    Wq, Wk, Wv = (matrix(layer, name, WIDTH) for name in ("Wq", "Wk", "Wv"))
    for batch, notes in (((), ()), ((BATCH,), ("takes tokens with a batch in front",))):
        x = normal(*batch, QUERIES, WIDTH)
        query, key, value = x @ Wq, x @ Wk, x @ Wv
        sizes = {"d_model": WIDTH, "d_v": value.shape[-1], "number of tokens": QUERIES}
        run, times = forward(layer)
        case = Case((x,) * times, query, key, value, sizes)
        yield Trial(module, run, [case], (far_tokens(x.shape, Wq, Wk, 1),) * times, notes)


def heads_trials(module: ModuleType, kind: Callable[..., Any]) -> Iterator[Trial]:
    """Several heads: tokens with a batch in front, as in the first lesson, or as a matrix."""
    random = np.random.default_rng(0)
    layer = made(module, kind, [(D_MODEL, HEADS), (D_MODEL, HEADS, random), (D_MODEL, HEADS, 0)])
    straight = [matrix(layer, name, D_MODEL) for name in ("Wq", "Wk", "Wv", "Wo")]
    for batch, notes in (((BATCH,), ()), ((), ("takes tokens without a batch in front",))):
        x = normal(*batch, QUERIES, D_MODEL)
        sizes = {"d_model": D_MODEL, "number of heads": HEADS, "number of tokens": QUERIES}
        run, times = forward(layer)
        cases = []
        for Wq, Wk, Wv, Wo in (straight, [part.T for part in straight]):
            cases.append(Case((x,) * times, x @ Wq, x @ Wk, x @ Wv, sizes, HEADS, Wo))
        far = far_tokens(x.shape, straight[0], straight[1], HEADS)
        yield Trial(module, run, cases, (far,) * times, notes)


def far_tokens(shape: tuple[int, ...], Wq: Array, Wk: Array, heads: int) -> Array:
    """Tokens that are almost alike, and so large that scores are: exp of the largest, at least, overflows.

    In no head are scores below 0: who subtracts one maximum for all heads is stable enough here.
    """
    tokens = np.random.default_rng(0).normal(size=(TRIED, shape[-1]))
    scores = ((tokens @ Wq) * (tokens @ Wk)).reshape(TRIED, heads, -1).sum(-1)  # of a token with itself
    best = scores.min(axis=1).argmax()
    width = Wq.shape[1] // heads
    size = np.sqrt(HIGHEST * np.sqrt(width) / scores[best].max())
    tokens_alike: Array = size * tokens[best] + np.random.default_rng(1).normal(size=shape) / TRIED
    return tokens_alike


def made(module: ModuleType, kind: Callable[..., Any], attempts: Sequence[tuple[Any, ...]]) -> object:
    """A layer, by the first arguments that its class takes.

    Raises:
        TroubleError: what the first arguments lead to, if none are taken.
    """
    if not inspect.isclass(kind):
        raise TroubleError(f"must be a class, but is {type(kind).__name__}")
    troubles = []
    for arguments in attempts:
        try:
            return call(module, kind, *arguments)
        except TroubleError as trouble:
            troubles.append(trouble)
    typed = ", ".join(str(size) for size in attempts[0])
    raise TroubleError(f"{kind.__name__}({typed}) {troubles[0]}", troubles[0].hint)


def forward(layer: object) -> tuple[Callable[..., Any], int]:
    """What runs a layer, and how often it wants the tokens: once, or as query, key and value.

    Raises:
        TroubleError: if there is none.
    """
    method = getattr(layer, "forward", layer)
    if not callable(method):
        raise TroubleError("has no method forward", "def forward(self, X): ... return output, weights")
    wanted = inspect.signature(method).parameters.values()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in wanted if one.kind in places and one.default is inspect.Parameter.empty]
    return method, 3 if len([one for one in needed if "mask" not in one.name.lower()]) == 3 else 1


def matrix(layer: object, name: str, rows: int) -> Array:
    """One of the layer's matrices, (rows, columns), however its name is spelt and its axes are turned.

    Raises:
        TroubleError: if there is none.
    """
    spelt = [other for other in dir(layer) if other.lower().replace("_", "") == name.lower()]
    if not spelt:
        raise TroubleError(f"has no attribute {name}", f"keep the matrix as self.{name}: it is needed to compare")
    found = numbers(getattr(layer, spelt[0]))
    if found.ndim == 3 and found.shape[1] == rows:  # a matrix for each head
        return np.moveaxis(found, 0, 1).reshape(rows, -1)
    if found.ndim == 2 and rows in found.shape:
        return found if found.shape[0] == rows else found.T
    raise TroubleError(f"its {name} has shape {found.shape}, but should be ({rows}, its own width)")
