"""From yaml to objects: what a configuration may say, every problem with it at once, and how it is built.

Closed nodes (data, train, evaluate, board) are dataclasses. Open nodes (task, model, positions) name a class in
`_target_`, and the constructor's keyword-only parameters are what the node must say: no more, no less.
"""

import collections.abc
import difflib
import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import torch
from omegaconf import OmegaConf
from pydantic import ConfigDict

from lookback.board import BoardSettings
from lookback.data import DataSettings
from lookback.evaluate import EvaluateSettings
from lookback.models.base import Seq2Seq
from lookback.rules import NonNegativeInt
from lookback.tasks.base import Task
from lookback.train import TrainSettings

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
CLOSED: dict[str, Any] = {
    "data": DataSettings,
    "train": TrainSettings,
    "evaluate": EvaluateSettings,
    "board": BoardSettings,
}
WORDS = {  # pydantic's words, and ours
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid dictionary or instance of Schema": "a group of settings",
    "a valid list": "a list",
    "List should have at least": "a list of at least",
    " after validation, not 0": "",
}
OPEN: dict[str, type] = {"task": Task, "model": Seq2Seq}


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration: at which key, with which value (if any), and the rule it breaks."""

    key: str
    rule: str
    value: object = None

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {self.value}"
        return f"{self.key}{value}: {self.rule}"


class ConfigError(ValueError):
    """A configuration with problems; its text names them all."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        lines = [str(problem) for problem in self.problems]
        many = f"{len(lines)} problems in the configuration:\n  " if len(lines) > 1 else ""
        super().__init__(many + "\n  ".join(lines))


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Attributes:
        raw: the resolved yaml, as plain dictionaries, lists, numbers and text.
        seed: of weights, training batches and dropout.
        task: makes the task.
        model: makes the model, from the sizes of the source and target vocabularies.
        data: training strings.
        train: training.
        evaluate: final evaluation.
        board: logging.
    """

    raw: dict[str, Any]
    seed: int
    task: Callable[[], Task]
    model: Callable[[int, int], Seq2Seq]
    data: DataSettings
    train: TrainSettings
    evaluate: EvaluateSettings
    board: BoardSettings

    def save(self, path: Path) -> None:
        """Write the resolved yaml."""
        OmegaConf.save(OmegaConf.create(self.raw), path)


def read(path: Path) -> dict[str, Any]:
    """Read a resolved yaml back.

    Raises:
        ConfigError: if there is no such file.
    """
    if not path.is_file():
        raise ConfigError([Problem(str(path), "no such file")])
    return typing.cast(dict[str, Any], OmegaConf.to_container(OmegaConf.load(path)))


def build(raw: Mapping[str, Any]) -> Config:
    """Check a resolved configuration, and turn it into settings and factories.

    Raises:
        ConfigError: naming every problem found; nothing has been built then.
    """
    problems = check(raw)
    if problems:
        raise ConfigError(problems)
    closed = {name: kind(**raw[name]) for name, kind in CLOSED.items()}
    return Config(dict(raw), raw["seed"], _factory(raw["task"]), _factory(raw["model"]), **closed)


def build_parts(raw: Mapping[str, Any]) -> tuple[Task, Callable[[], Seq2Seq]]:
    """The task, and what makes its model, of a stored configuration; its other nodes are not looked at.

    Raises:
        ConfigError: naming every problem with these two nodes.
    """
    problems = [problem for name, base in OPEN.items() for problem in _check_node(name, raw.get(name), base)]
    if problems:
        raise ConfigError(problems)
    task: Task = _factory(raw["task"])()
    return task, functools.partial(_factory(raw["model"]), len(task.source_vocabulary), len(task.target_vocabulary))


def check(raw: Mapping[str, Any]) -> list[Problem]:
    """Find all problems of a resolved configuration; no random number is drawn, no memory taken for weights."""
    known = ["seed", *OPEN, *CLOSED]
    problems = [
        Problem(key, unknown(key, [*known, "model/positions"]), raw[key]) for key in raw if key not in known
    ]
    problems += [Problem(key, "is missing") for key in known if key not in raw]
    if "seed" in raw:
        problems += _problems("", {"seed": NonNegativeInt}, {"seed": raw["seed"]})
    for name, kind in CLOSED.items():
        if name in raw:
            problems += _problems(name, _keywords(kind), raw[name])
    for name, base in OPEN.items():
        if name in raw:
            problems += _check_node(name, raw[name], base)
    broken = {problem.key.partition(".")[0] for problem in problems}
    return problems + _check_together(raw, {name for name in known if name not in broken})


def unknown(key: str, known: Iterable[str], prefix: str = "") -> str:
    """The rule that an unknown key breaks, with the nearest valid name, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        return f"no such key; the nearest is {prefix}{near[0]}"
    return f"no such key; there are {', '.join(prefix + name for name in known) or 'none'}"


def _problems(name: str, keywords: Mapping[str, Any], values: object) -> list[Problem]:
    """Let pydantic compare values with types, and say what it found in our words."""
    fields: Any = {key: (kind, ...) for key, kind in keywords.items()}
    schema = pydantic.create_model("Schema", __config__=STRICT, **fields)
    try:
        schema.model_validate(values)
    except pydantic.ValidationError as error:
        return [_problem(name, found, list(keywords)) for found in error.errors()]
    return []


def _problem(name: str, found: Any, known: list[str]) -> Problem:  # noqa: ANN401 (pydantic's dictionary)
    key = ".".join(filter(None, [name, *map(str, found["loc"])]))
    match found["type"]:
        case "extra_forbidden":
            return Problem(key, unknown(str(found["loc"][-1]), known, f"{name}."), found["input"])
        case "missing":
            return Problem(key, "is missing")
        case _:
            rule = found["msg"].removeprefix("Input should be ")
            for theirs, ours in WORDS.items():
                rule = rule.replace(theirs, ours)
            return Problem(key, f"must be {rule}", found["input"])


def _target(node: Mapping[str, Any]) -> Any:  # noqa: ANN401 (whatever a yaml may name)
    """The class that a node names."""
    module, _, name = str(node["_target_"]).rpartition(".")
    return getattr(importlib.import_module(module), name)


def _keywords(target: type) -> dict[str, Any]:
    """What a node of this class must say: its constructor's keyword-only parameters and their types."""
    constructor = inspect.signature(target.__init__)  # type: ignore[misc]
    hints = typing.get_type_hints(target.__init__, include_extras=True)  # type: ignore[misc]
    kinds = constructor.parameters.values()
    return {kind.name: hints[kind.name] for kind in kinds if kind.kind is inspect.Parameter.KEYWORD_ONLY}


def _check_node(name: str, node: object, base: type) -> list[Problem]:
    """Check an open node, and the open nodes inside it, against the constructors they name."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        return [Problem(name, "must be a group of settings with a _target_", node)]
    problem = Problem(f"{name}._target_", f"must name a {base.__name__} inside lookback", node["_target_"])
    if not str(node["_target_"]).startswith("lookback."):
        return [problem]
    try:
        target = _target(node)
    except (ImportError, AttributeError, ValueError):
        return [problem]
    if not inspect.isclass(target) or not issubclass(target, base) or inspect.isabstract(target):
        return [problem]
    keywords = _keywords(target)
    inner = {key: kind for key, kind in keywords.items() if typing.get_origin(kind) is collections.abc.Callable}
    values = {key: value for key, value in node.items() if key != "_target_" and key not in inner}
    problems = _problems(name, {key: kind for key, kind in keywords.items() if key not in inner}, values)
    for key, kind in inner.items():
        made = typing.get_args(kind)[-1]
        problems += _check_node(f"{name}.{key}", node.get(key), made)
    return problems


def _factory(node: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that makes what the node says from what is known only at run time."""
    values = {
        key: _factory(value) if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in node.items()
        if key != "_target_"
    }
    return functools.partial(_target(node), **values)


def _check_together(raw: Mapping[str, Any], sound: set[str]) -> list[Problem]:
    """Rules that need more than one value: run the constructors, which know them, of nodes that are sound so far.

    The model is made on torch's meta device, which has no memory and draws no random number.
    """
    problems = []
    for name in sound & CLOSED.keys():
        try:
            CLOSED[name](**raw[name])
        except ValueError as error:
            problems.append(Problem(name, str(error)))
            sound = sound - {name}
    if "train" in sound and raw["train"]["device"] == "cuda" and not torch.cuda.is_available():
        problems.append(Problem("train.device", "this machine has no CUDA device", "cuda"))
    if sound.issuperset(OPEN):
        problems += _check_parts(raw, sound)
    return problems


def _check_parts(raw: Mapping[str, Any], sound: set[str]) -> list[Problem]:
    """Task and model together, and the lengths that are asked of them."""
    task: Task | None = None
    try:
        task = _factory(raw["task"])()
        with torch.device("meta"):
            model: Seq2Seq = _factory(raw["model"])(len(task.source_vocabulary), len(task.target_vocabulary))
    except ValueError as error:
        return [Problem("model" if task else "task", str(error))]
    problems = []
    for node, name in (("data", "max_length"), ("evaluate", "lengths"), ("board", "probe_lengths")):
        value = raw[node][name] if node in sound else 0
        longest = max(value) if isinstance(value, list) else value
        if model.max_length is not None and longest + 2 > model.max_length:
            rule = f"must not be above {model.max_length - 2}: model.positions.max_length is {model.max_length}"
            problems.append(Problem(f"{node}.{name}", f"{rule}, and BOS and EOS take two places", longest))
    return problems
