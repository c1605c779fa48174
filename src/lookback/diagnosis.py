"""Which faults explain a result: the fewest ways of doing attention wrong that give exactly its numbers."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lookback.faults import HIDE, JOIN, NORMALISE, PRODUCT, PROJECT, SPLIT, Case, Fault, Mask, Seen, Steps, Way
from lookback.lesson import Array

CLOSE = 1e-5  # the same numbers, worked out in float32, are less apart
MOST_FAULTS = 3


def scales(case: Case) -> list[Way]:
    """Divide the scores by sqrt(d_k), or by something else that is at hand."""
    d_k = case.d_k
    right = math.sqrt(d_k)
    names = {f"sqrt({name})": math.sqrt(size) for name, size in case.sizes.items()}
    names |= {name: float(size) for name, size in case.sizes.items()}
    found = [
        Steps.right(case).scale,
        _scale(1.0, f"the scale is missing: scores are not divided by sqrt(d_k) = sqrt({d_k}) = {right:.2f}"),
        _scale(float(d_k), f"the scores are divided by {d_k}, which is d_k without the root"),
        _scale(1 / right, f"the scores are multiplied by sqrt(d_k) = sqrt({d_k}), not divided by it"),
    ]
    for name, divisor in names.items():
        found.append(_scale(divisor, f"the scores are divided by {name} = {divisor:.3g}, not by {_root(d_k)}"))
    return found


def _root(d_k: int) -> str:
    return f"sqrt(d_k) = sqrt({d_k}) = {math.sqrt(d_k):.2f}"


def _scale(divisor: float, what: str) -> Way:
    hint = "scores = Q K^T / np.sqrt(d_k), with d_k = Q.shape[-1] of one head"
    return Way(lambda scores: scores / divisor, Fault(what, hint))


def _fitted(case: Case, weights: Array, split: Way, product: Way) -> Iterator[Way]:
    """The scale that the weights themselves tell: their logarithms differ as the scores do, divided by it."""
    query, key = (split.do(part, case.heads) if case.heads else part for part in (case.query, case.key))
    scores = product.do(query, key)
    if weights.shape != scores.shape or not np.all(weights > 0):
        return
    for axis in (-1, -2):
        s, w = (part - part.mean(axis=axis, keepdims=True) for part in (scores, np.log(weights)))
        slope = float((s * w).sum() / (s * s).sum())
        if slope > 0:
            divisor = 1 / slope
            square = round(divisor**2)
            root = f" = sqrt({square})" if abs(divisor**2 - square) < math.sqrt(CLOSE) else ""
            yield _scale(divisor, f"the scores are divided by {divisor:.3g}{root}, not by {_root(case.d_k)}")


def explain(case: Case, seen: Seen) -> Steps | None:
    """Find the fewest faults that give exactly what was seen; None if no ways that are known do."""
    square = case.query.shape == case.key.shape
    found = []
    for split, product in itertools.product(SPLIT if case.heads else SPLIT[:1], PRODUCT if square else PRODUCT[:1]):
        fitted = () if seen.weights is None else _fitted(case, seen.weights, split, product)
        for scale, normalise in itertools.product((*scales(case), *fitted), NORMALISE):
            found.append(Steps(split, product, scale, normalise, JOIN[0], PROJECT[0], HIDE[0]))
    if seen.weights is not None:
        found = [steps for steps in found if same(steps, case, None, Seen(None, seen.weights))]
    if case.heads:
        ends = list(itertools.product(JOIN, PROJECT))
        found = [replace(steps, join=join, project=project) for steps in found for join, project in ends]
    few = [steps for steps in found if len(steps.faults) <= MOST_FAULTS]
    return next((steps for steps in sorted(few, key=_badness) if same(steps, case, None, seen)), None)


def _badness(steps: Steps) -> int:
    return len(steps.faults)


def explain_mask(steps: Steps, case: Case, mask: Mask, seen: Seen) -> Steps | None:
    """The same of what was seen under a mask, where all other steps are known."""
    ways = (replace(steps, hide=hide) for hide in HIDE)
    return next((changed for changed in ways if same(changed, case, mask, seen)), None)


def same(steps: Steps, case: Case, mask: Mask | None, seen: Seen) -> bool:
    """Whether these steps give what was seen, as far as it was."""
    try:
        with np.errstate(all="ignore"):
            expected = steps.run(case, mask)
    except ValueError:  # arrays that do not fit together that way
        return False
    return all(_alike(one, other) for one, other in zip(expected, seen, strict=True) if other is not None)


def _alike(expected: Array | None, seen: Array) -> bool:
    return expected is not None and expected.shape == seen.shape and np.allclose(expected, seen, CLOSE, CLOSE)


def sentences(steps: Steps, case: Case) -> list[Fault]:
    """The faults of these steps, with the numbers that they lead to."""
    return [filled(fault, first_row(steps, case)) for fault in steps.faults]


def first_row(steps: Steps, case: Case, mask: Mask | None = None) -> Array:
    """The first row of weights that these steps make: (key,)."""
    weights = steps.run(case, mask).weights
    assert weights is not None
    row: Array = weights.reshape(-1, weights.shape[-1])[0]
    return row


def filled(fault: Fault, row: Array) -> Fault:
    """A fault with the numbers of the first row of weights: (key,)."""
    return Fault(fault.what.format(row_sum=row.sum(), first=row[0]), fault.hint)
