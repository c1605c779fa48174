"""What is wrong with somebody's softmax, or attention, or layer of it."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from lookback import lesson
from lookback.diagnosis import CLOSE, explain, explain_mask, filled, first_row, same, sentences
from lookback.faults import NORMALISE, Case, Fault, Mask, Seen, Steps
from lookback.lesson import Array
from lookback.student_file import TroubleError, call
from lookback.trials import NotFiniteError, Trial, axis_keyword, mask_keyword, normal, numbers


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
    trial, seen, wrong = _first(trials)
    notes, stretch = list(trial.notes), 1.0
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


def _first(trials: Iterable[Trial]) -> tuple[Trial, Seen, list[Fault]]:
    troubles = []
    for trial in trials:
        try:
            return trial, *trial.ask(trial.cases[0].inputs)
        except TroubleError as trouble:
            troubles.append(trouble)
    raise next((trouble for trouble in troubles if trouble.called), troubles[0])


SENSES: dict[str, Callable[[Mask], Array | Mask]] = {
    "mask: True = may look": lambda mask: mask,
    "mask: 1 = may look, 0 = hidden": lambda mask: mask.astype(float),
}
ADDED = "mask: added to the scores, 0 and -inf"


def _mask(trial: Trial, case: Case, steps: Steps) -> tuple[list[Fault], list[str]]:
    """Whether the mask hides what it should, in any of the usual senses, and in which.

    A mask to be added comes last: to who hides where it is not 0, in the turned sense, it looks right.
    """
    shape = (case.query.shape[-2], case.key.shape[-2])
    mask = np.add.outer(np.arange(shape[0]), np.arange(shape[1])) % 3 != 0  # each row and column has both
    answers, troubles = [], []
    for sense, form in SENSES.items():
        try:
            answers.append(trial.ask(case.inputs, form(mask))[0])
        except TroubleError as trouble:
            troubles.append(trouble)
        else:
            if same(steps, case, mask, answers[-1]):
                return [], [sense]
    for seen in answers:
        changed = explain_mask(steps, case, mask, seen)
        if changed is not None:
            assert changed.hide.fault is not None
            return [filled(changed.hide.fault, first_row(changed, case, mask))], []
    with suppress(TroubleError):
        added, _ = trial.ask(case.inputs, np.where(mask, 0.0, -np.inf))
        if same(steps, case, mask, added):
            return [], [ADDED]
    told = f"with a mask it {troubles[0]}" if not answers else f"with a mask {_shown(answers[0], mask)}"
    return [Fault(told, "hide scores before softmax: np.where(mask, scores, -1e9)")], []


def _shown(seen: Seen, mask: Mask) -> str:
    """What a mask that does something strange leaves to see."""
    if seen.weights is None:
        return "the output is another than the lesson's"
    hidden = np.abs(np.where(mask, 0.0, seen.weights)).max()
    return f"the result is another than the lesson's: hidden keys have weights of up to {hidden:.2g}"


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
