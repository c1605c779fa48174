"""What is wrong with somebody's softmax, or attention, or layer of it."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from lookback import lesson
from lookback.diagnosis import CLOSE, explain, explain_mask, filled, first_row, same, sentences
from lookback.faults import NORMALISE, Case, Fault, Mask, Seen, Steps
from lookback.lesson import Array
from lookback.student_file import NotFiniteError, TroubleError, call, numbers
from lookback.trials import Answer, Trial, axis_keyword, mask_keyword, normal

Form = Callable[[Mask], Array | Mask]


class Judgement(NamedTuple):
    """What is wrong, and what there is to say beside; right if nothing is wrong."""

    wrong: list[Fault]
    notes: list[str]


def judge_softmax(module: ModuleType, function: Callable[..., Any], asked: set[int]) -> Judgement:
    """Softmax of small numbers, then of large ones: of a matrix, unless it is only used for single rows.

    Args:
        module: somebody's file.
        function: of that file.
        asked: how many axes the arrays have that the file's own attention gives it; empty = it is not used.

    Raises:
        TroubleError: if nothing comes back that could be judged.
    """
    axis = axis_keyword(function)

    def whole(x: Array) -> Array:
        return numbers(call(module, function, x, **axis))

    def by_rows(x: Array) -> Array:
        return np.stack([whole(row) for row in x])

    x, ask, notes = normal(ROWS, COLUMNS), whole, []
    if asked == {1}:
        ask, notes = by_rows, ["takes one row at a time, which is how it is used here"]
    try:
        found = ask(x)
    except TroubleError as trouble:
        if trouble.called or asked:
            raise
        ask, notes = by_rows, ["takes one row at a time"]
        try:
            found = by_rows(x)
        except TroubleError:
            raise trouble from None
    if found.shape != x.shape:
        told = f"of an array of shape {x.shape} it makes one of shape {found.shape}"
        raise TroubleError(told, "there is one weight for each score", called=True)
    wrong = _softmax_faults(x, found) + _large(lambda: ask(x + 1000.0), "of scores around 1000")
    if not wrong and _large(lambda: ask(x - 1000.0 * np.arange(ROWS)[:, None]), ""):
        notes.append("one maximum for all rows leaves 0 / 0 in a row that is 750 below it; better each row's own")
    return Judgement(wrong, notes)


ROWS, COLUMNS = 3, 5
FIRST_MAXIMUM = "subtract the largest score of each row before exp: x - x.max(axis=-1, keepdims=True)"


def _softmax_faults(x: Array, found: Array) -> list[Fault]:
    for way in NORMALISE:
        with np.errstate(all="ignore"), suppress(ValueError):  # no such axis
            if np.allclose(way.do(x), found, CLOSE, CLOSE):
                return [] if way.fault is None else [filled(way.fault, found[0])]
    shown = [
        np.array2string(row, precision=2, suppress_small=True) for row in (x[0], found[0], lesson.softmax(x)[0])
    ]
    told = f"of {shown[0]} it makes {shown[1]}, not {shown[2]}"
    return [Fault(told, "exp(x), divided by its sum along the last axis")]


def _large(ask: Callable[[], object], where: str) -> list[Fault]:
    """The fault of what is not finite where scores are large."""
    try:
        ask()
    except NotFiniteError as error:
        return [Fault(f"is not stable: {where} it gives {error.found}", FIRST_MAXIMUM)]
    except TroubleError as error:
        return [Fault(f"{where} it {error}", error.hint)]
    return []


def judge_attention(trials: Iterable[Trial]) -> Judgement:
    """Attention, or a layer of it: without a mask, with one if it takes any, and with large scores.

    Args:
        trials: ways to call it: the first that something fitting comes back from counts.

    Raises:
        TroubleError: if nothing comes back that could be judged.
    """
    trial, (seen, wrong, remarks) = _first(trials)
    notes, stretch = [*trial.notes, *remarks], 1.0
    explained = ((case, explain(case, seen)) for case in trial.cases)
    case, steps = next((pair for pair in explained if pair[1] is not None), (trial.cases[0], None))
    if steps is not None:
        wrong += sentences(steps, case)
        rightly, theirs = (scale.do(np.ones(())) for scale in (Steps.right(case).scale, steps.scale))
        stretch = float(np.sqrt(rightly / theirs))  # makes up for a wrong scale
        if mask_keyword(trial.function) is not None:
            faults, sense = _mask(trial, case, steps)
            wrong, notes = wrong + faults, notes + sense
    else:
        wrong.append(_unknown(case, seen))
    far = [part * stretch for part in trial.large]
    wrong += _large(lambda: trial.ask(far), "of very large scores")
    return Judgement(wrong, notes)


def _first(trials: Iterable[Trial]) -> tuple[Trial, Answer]:
    troubles = []
    for trial in trials:
        try:
            return trial, trial.ask(trial.cases[0].inputs)
        except TroubleError as trouble:
            troubles.append(trouble)
    raise next((trouble for trouble in troubles if trouble.called), troubles[0])


SENSES: dict[str, Form] = {
    "mask: True = may look": lambda mask: mask,
    "mask: 1 = may look, 0 = hidden": lambda mask: mask.astype(float),
}
ADDED = "mask: added to the scores, 0 and -inf"
TURNED = "mask: 1 = hidden, as multiplied and added to the scores: the lessons' sense turned, where True = may look"
FILL = "set hidden scores to -1e9 or -inf before softmax: np.where(mask, scores, -1e9)"


def _mask(trial: Trial, case: Case, steps: Steps) -> tuple[list[Fault], list[str]]:
    """Whether the mask hides what it should, in any of the usual senses, and in which.

    A mask to be added comes last: to who hides where it is not 0, in the turned sense, it looks right.
    """
    shape = (case.query.shape[-2], case.key.shape[-2])
    mask = np.add.outer(np.arange(shape[0]), np.arange(shape[1])) % 3 != 0  # each row and column has both
    answers, troubles = [], []
    for sense, form in SENSES.items():
        try:
            answers.append(trial.ask(case.inputs, form(mask)).seen)
        except TroubleError as trouble:
            troubles.append(trouble)
        else:
            if same(steps, case, mask, answers[-1]):
                return _weak(trial, case, steps, form), [sense]
    if _multiplied(trial, case, steps, mask):
        return _weak(trial, case, steps, lambda mask: (~mask).astype(float)), [TURNED]
    for seen in answers:
        changed = explain_mask(steps, case, mask, seen)
        if changed is not None:
            assert changed.hide.fault is not None
            return [filled(changed.hide.fault, first_row(changed, case, mask))], []
    with suppress(TroubleError):
        if same(steps, case, mask, trial.ask(case.inputs, _to_add(mask)).seen):
            return _weak(trial, case, steps, _to_add), [ADDED]
    told = f"with a mask it {troubles[0]}" if not answers else _shown(answers[0], steps, case, mask)
    return [Fault(told, FILL)], []


def _to_add(mask: Mask) -> Array:
    return np.where(mask, 0.0, -np.inf)


def _multiplied(trial: Trial, case: Case, steps: Steps, mask: Mask) -> bool:
    """Whether the mask is 1 where hidden, in `scores + mask * -1e9`: less hides less, and almost 0 nothing."""
    with suppress(TroubleError):
        whole, less, nothing = (trial.ask(case.inputs, size * ~mask).seen for size in (1.0, 0.25, 1e-18))
        unmasked = [same(steps, case, None, seen) for seen in (less, nothing)]
        return same(steps, case, mask, whole) and unmasked == [False, True]
    return False


def _weak(trial: Trial, case: Case, steps: Steps, form: Form) -> list[Fault]:
    """The fault of a mask that hides only among small scores; of large ones, each row may see its lowest."""
    query, key = (steps.split.do(part, case.heads) if case.heads else part for part in (case.query, case.key))
    scores = steps.scale.do(steps.product.do(query, key))
    size = np.sqrt(FAR / np.abs(scores).max())
    first = scores.reshape(-1, *scores.shape[-2:])[0]
    mask = first == first.min(axis=-1, keepdims=True)
    far = replace(
        case,
        inputs=tuple(size * part for part in case.inputs),
        query=size * case.query,
        key=size * case.key,
        value=size * case.value,
    )
    try:
        seen = trial.ask(far.inputs, form(mask)).seen
    except TroubleError:  # of scores that are too large for it, which is told elsewhere
        return []
    if same(steps, far, mask, seen):
        return []
    told = f"{WEAK}: where scores are up to {FAR:.0f}, "
    if seen.weights is None:
        return [Fault(f"{told}the output is another than the lesson's", FILL)]
    most = np.where(mask, 0.0, seen.weights).max()
    return [Fault(f"{told}hidden keys have weights of up to {most:.2g}", FILL)] if most > CLOSE else []


FAR = 300.0  # a large score, of which exp and exp(-x) are still numbers
WEAK = "what fills hidden places is too weak"


def _shown(seen: Seen, steps: Steps, case: Case, mask: Mask) -> str:
    """What a mask that does something strange leaves to see."""
    if seen.weights is None:
        return "with a mask the output is another than the lesson's"
    visible = np.where(mask, seen.weights, 0.0)
    hidden = np.abs(seen.weights - visible).max()
    with np.errstate(all="ignore"):
        shares = visible / visible.sum(axis=-1, keepdims=True)
    told = f"hidden keys have weights of up to {hidden:.2g}"
    if same(steps, case, mask, Seen(None, shares)):
        return f"{WEAK}: {told}"
    return f"with a mask the result is another than the lesson's: {told}"


def _unknown(case: Case, seen: Seen) -> Fault:
    """What can be said of a result that no known fault explains."""
    expected = Steps.right(case).run(case)
    far = [
        f"{name} by up to {np.abs(found - right).max():.2g}"
        for name, found, right in zip(("output", "weights"), seen, expected, strict=True)
        if found is not None and right is not None and not np.allclose(found, right, CLOSE, CLOSE)
    ]
    only = " (the weights are right)" if seen.weights is not None and len(far) == 1 and "output" in far[0] else ""
    told = f"differs from the lesson's, {' and '.join(far)}{only}, and no fault that is known here explains it"
    return Fault(told, "compare it step by step with src/lookback/lesson.py")
