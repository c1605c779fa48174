"""Check somebody's own NumPy attention, written under the lessons' names: which step is wrong, and how."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal

import numpy as np

from lookback import lesson
from lookback.faults import Fault
from lookback.judges import Judgement, judge_attention, judge_softmax
from lookback.student_file import RaisedError, TroubleError, caught, load, printable
from lookback.trials import attention_trials, heads_trials, layer_trials


@dataclass(frozen=True)
class Finding:
    """What was found of one step.

    Attributes:
        step: the lessons' name of it.
        verdict: in a word or two.
        diagnosis: what is wrong, with the numbers seen; of a right one, what there is to say.
        hint: what to do about it.
    """

    step: str
    verdict: Literal["right", "wrong", "not there"]
    diagnosis: str = ""
    hint: str = ""


Judge = Callable[[ModuleType, Any], Judgement]
STEPS: dict[str, Judge] = {
    "softmax": lambda module, it: judge_softmax(module, it, _asked(module)),
    "scaled_dot_product_attention": lambda module, it: judge_attention(attention_trials(module, it)),
    "SelfAttention": lambda module, it: judge_attention(layer_trials(module, it)),
    "MultiHeadAttention": lambda module, it: judge_attention(heads_trials(module, it)),
}
ALSO = {"scaled_dot_product_attention": "scaled_dot_attention"}  # the first lesson's name of it
ORACLES: dict[str, Callable[..., Any]] = {
    "softmax": lesson.softmax,
    "scaled_dot_product_attention": lesson.scaled_dot_product_attention,
}


def check(path: Path) -> list[Finding]:
    """Judge all steps that a file has, in the lessons' order.

    Raises:
        ValueError: if the file cannot be run, or has none of them: one line, with the number of the line at fault.
    """
    try:
        module = load(path)
    except TroubleError as trouble:
        raise ValueError(printable(f"{path}: {trouble}")) from None
    names = {step: _name(module, step) for step in STEPS}
    if not any(names.values()):
        raise ValueError(printable(f"{path} must have one of {', '.join(STEPS)}, but has {_has(module)}"))
    findings: list[Finding] = []
    faulty: dict[str, str] = {}  # steps that are wrong by themselves, and their names in the file
    for step, name in names.items():
        if name is None:
            findings.append(Finding(step, "not there"))
            continue
        judgement = _judge(module, step, name)
        through = list(faulty)
        judgement, alone = _alone(module, step, name, judgement, faulty)
        if judgement.wrong and alone:
            faulty[step] = name
        findings.append(_finding(step, judgement) if alone else _through(step, through))
    return findings


def _name(module: ModuleType, step: str) -> str | None:
    """Under which name a file has a step."""
    return next((name for name in (step, ALSO.get(step, step)) if name in vars(module)), None)


def _has(module: ModuleType) -> str:
    """The functions and classes that were written in a file."""
    own = []
    for name, it in list(vars(module).items()):
        with suppress(TroubleError), caught(str(module.__file__)):  # an object may refuse to be asked
            if isinstance(it, FunctionType | type) and it.__module__ == module.__name__:
                own.append(name)
    return ", ".join(own) if own else "no function or class at all"


def _judge(module: ModuleType, step: str, name: str) -> Judgement:
    try:
        with caught(str(module.__file__)):
            return STEPS[step](module, vars(module)[name])
    except TroubleError as trouble:
        if isinstance(trouble, RaisedError) and not trouble.inside:
            raise trouble.error from None
        told = f"raises an error at {trouble}" if isinstance(trouble, RaisedError) else str(trouble)
        return Judgement([Fault(told, trouble.hint)], [])


def _alone(
    module: ModuleType, step: str, name: str, judgement: Judgement, faulty: dict[str, str]
) -> tuple[Judgement, bool]:
    """What is wrong with a step by itself, where steps that it uses are wrong; whether anything is."""
    oracles = {there: ORACLES[used] for used, there in faulty.items() if used in ORACLES}
    if not judgement.wrong or not oracles:
        return judgement, True
    with _replaced(module, oracles):
        again = _judge(module, step, name)
    if not again.wrong:
        return judgement, False
    fewer = set(again.wrong) < set(judgement.wrong)
    return again if fewer else judgement, True


def _asked(module: ModuleType) -> set[int]:
    """How many axes the arrays have that the file's other steps give to its softmax."""
    axes: set[int] = set()
    function = module.softmax

    def noted(x: object, *more: object, **named: object) -> object:
        axes.add(np.ndim(x))  # type: ignore[arg-type]
        return function(x, *more, **named)

    with _replaced(module, {"softmax": noted}):
        for step in STEPS:
            name = _name(module, step)
            if step != "softmax" and name is not None:
                _judge(module, step, name)
    return axes


def _finding(step: str, judgement: Judgement) -> Finding:
    if not judgement.wrong:
        return Finding(step, "right", "; ".join(judgement.notes))
    diagnosis, hint = ("; ".join(dict.fromkeys(filter(None, part))) for part in zip(*judgement.wrong, strict=True))
    return Finding(step, "wrong", diagnosis, hint)


def _through(step: str, faulty: list[str]) -> Finding:
    used = " and ".join(name for name in faulty if name in ORACLES)
    return Finding(
        step, "wrong", f"only through {used}: with the lesson's in its place it is right", f"repair {used}"
    )


@contextmanager
def _replaced(module: ModuleType, others: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """The file with other functions in place of some of its own."""
    before = {name: vars(module)[name] for name in others}
    vars(module).update(others)
    try:
        yield
    finally:
        vars(module).update(before)
