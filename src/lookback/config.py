"""From yaml to objects: what a configuration may say, every problem with it at once, and how it is built.

Closed nodes (data, train, evaluate, board) are dataclasses. Open nodes (task, model, positions) are of `nodes.py`.
"""

import functools
import hashlib
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from lookback import schema
from lookback.board import BoardSettings
from lookback.data import DataSettings
from lookback.evaluate import EvaluateSettings
from lookback.files import write_whole
from lookback.models.base import Seq2Seq
from lookback.nodes import check_node, factory, located
from lookback.pair_file import PairFileError
from lookback.rules import Seed
from lookback.schema import ConfigError, Problem, unknown
from lookback.tasks.base import Task
from lookback.train import TrainSettings

CLOSED: dict[str, Any] = {
    "data": DataSettings,
    "train": TrainSettings,
    "evaluate": EvaluateSettings,
    "board": BoardSettings,
}
OPEN: dict[str, type] = {"task": Task, "model": Seq2Seq}

EARLIER: dict[str, dict[str, Any]] = {
    "train": {"epochs": None, "patience": None},
    "evaluate": {"split": "test", "symbols": None, "exact_only": False},
    "board": {"alignment_every": 0, "snapshots_every": 0},
}
EARLIER_MODELS: dict[str, dict[str, Any]] = {
    "lookback.models.transformer.Transformer": {
        "log_length": False,
        "residual": True,
        "scale": True,
        "causal": True,
    },
}
"""Settings that a stored configuration may lack because it is older, and what was so without them."""


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
        """Write the resolved yaml, whole or not at all: without it a run cannot be resumed."""
        write_whole(path, OmegaConf.to_yaml(OmegaConf.create(self.raw)).encode())


def digest(raw: Mapping[str, Any]) -> str:
    """The same for the same resolved configuration, whatever the order of its keys."""
    return hashlib.blake2b(json.dumps(raw, sort_keys=True).encode(), digest_size=6).hexdigest()


def read(path: Path) -> dict[str, Any]:
    """Read a resolved yaml back.

    Raises:
        ConfigError: if there is no such file, or it is not one.
    """
    if not path.is_file():
        raise ConfigError([Problem(str(path), "no such file")])
    try:
        found = OmegaConf.to_container(OmegaConf.load(path))
    except Exception as error:  # yaml, OmegaConf and the file system each have their own
        raise ConfigError([Problem(str(path), f"not readable as yaml ({type(error).__name__})")]) from error
    if not isinstance(found, dict) or not found:
        raise ConfigError([Problem(str(path), "must be a configuration, with a key a line")])
    return upgraded(typing.cast(dict[str, Any], found))


def upgraded(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A stored configuration with the settings that came after it was written, as things were without them."""
    nodes = dict(raw)
    for name, added in EARLIER.items():
        node = nodes.get(name)
        if isinstance(node, Mapping):
            nodes[name] = {**added, **node}
    train = nodes.get("train")
    if isinstance(train, Mapping) and train.get("epochs") is not None:
        nodes["train"] = {**train, "steps": None}  # it had been there, and done nothing
    model = nodes.get("model")
    if isinstance(model, Mapping):
        nodes["model"] = {**EARLIER_MODELS.get(str(model.get("_target_")), {}), **model}
    return nodes


def build(raw: Mapping[str, Any]) -> Config:
    """Check a resolved configuration, and turn it into settings and factories.

    Raises:
        ConfigError: naming every problem found; nothing has been built then.
    """
    problems = check(raw)
    if problems:
        raise ConfigError(problems)
    closed = {name: kind(**schema.coerced(schema.keywords(kind), raw[name])) for name, kind in CLOSED.items()}
    train, data = closed["train"], closed["data"]
    if train.epochs is not None:
        batches = task_of(raw).batches_an_epoch(data.batch_size, data.trained)
        closed["train"] = replace(train, steps=train.epochs * batches)
    return Config(dict(raw), raw["seed"], factory(raw["task"]), factory(raw["model"]), **closed)


def task_of(raw: Mapping[str, Any]) -> Task:
    """The task of a checked configuration."""
    task: Task = factory(raw["task"])()
    return task


def build_parts(raw: Mapping[str, Any], state: dict[str, Any] | None = None) -> tuple[Task, Callable[[], Seq2Seq]]:
    """The task, and what makes its model, of a stored configuration; its other nodes are not looked at.

    Args:
        raw: the configuration.
        state: what a checkpoint kept of the task.

    Raises:
        ConfigError: naming every problem with these two nodes.
    """
    raw = upgraded(raw)
    problems = [problem for name, base in OPEN.items() for problem in check_node(name, raw.get(name), base)]
    if problems:
        raise ConfigError(problems)
    task = task_of(raw)
    if state:
        task.restore(state)
    return task, functools.partial(factory(raw["model"]), len(task.source_vocabulary), len(task.target_vocabulary))


def with_paths(raw: Mapping[str, Any], here: Path) -> dict[str, Any]:
    """The same configuration with the paths of open nodes absolute."""
    return {key: located(node, here) if key in OPEN else node for key, node in raw.items()}


def check(raw: Mapping[str, Any]) -> list[Problem]:
    """Find all problems of a resolved configuration; no random number is drawn, no memory taken for weights."""
    known = ["seed", *OPEN, *CLOSED]
    inner = [f"{name}.{key}" for name, kind in CLOSED.items() for key in schema.keywords(kind)]
    inner += [f"{name}.{key}" for name in OPEN if isinstance(raw.get(name), Mapping) for key in raw[name]]
    names = [*known, "model/positions", *inner]
    problems = [Problem(key, unknown(key, names, shown=known), raw[key]) for key in raw if key not in known]
    problems += [Problem(key, "is missing") for key in known if key not in raw]
    if "seed" in raw:
        problems += schema.problems("", {"seed": Seed}, {"seed": raw["seed"]})
    for name, kind in CLOSED.items():
        if name in raw:
            problems += schema.problems(name, schema.keywords(kind), raw[name])
    for name, base in OPEN.items():
        if name in raw:
            problems += check_node(name, raw[name], base)
    broken = {problem.key.partition(".")[0] for problem in problems}
    return problems + _check_together(raw, {name for name in known if name not in broken})


def _check_together(raw: Mapping[str, Any], sound: set[str]) -> list[Problem]:
    """Rules that need more than one value: run the constructors, which know them, of nodes that are sound so far.

    The model is made on torch's meta device, which has no memory and draws no random number.
    """
    problems = []
    for name in [name for name in CLOSED if name in sound]:
        try:
            CLOSED[name](**schema.coerced(schema.keywords(CLOSED[name]), raw[name]))
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
    what = "task"
    try:
        task = task_of(raw)
        symbols = len(task.source_vocabulary), len(task.target_vocabulary)
        what = "model"
        with torch.device("meta"):
            model: Seq2Seq = factory(raw["model"])(*symbols)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:  # all but the first: sizes past torch's
        told = str(error) if isinstance(error, PairFileError) else str(error).splitlines()[0]
        return [Problem(what, told)]
    problems = _check_list(raw, sound, task, model)
    asked = (("data", "max_length"), ("evaluate", "lengths"), ("board", "probe_lengths"))
    for node, name in () if task.listed else asked:
        if node not in sound or model.max_length is None or raw[node][name] is None:
            continue
        value = raw[node][name]
        longest = max(value) if isinstance(value, list) else value
        have = f"model.positions.max_length is {model.max_length}"
        if longest + 2 > model.max_length:
            rule = f"must not be above {model.max_length - 2}: {have}, and BOS and EOS take two places"
            problems.append(Problem(f"{node}.{name}", rule, longest))
        elif (needed := max(task.places(longest))) > model.max_length:
            rule = f"{have}, and strings of this length need {needed} in this task"
            problems.append(Problem(f"{node}.{name}", rule, longest))
    return problems


def _check_list(raw: Mapping[str, Any], sound: set[str], task: Task, model: Seq2Seq) -> list[Problem]:
    """What only a list of pairs may leave open, and what it asks of the model."""
    if task.listed:
        return _check_pairs(raw, sound, task, model)
    problems = [
        Problem(f"evaluate.{key}", "must be given for a task whose strings are drawn: they have no end", "null")
        for key in ("lengths", "strings")
        if "evaluate" in sound and raw["evaluate"][key] is None
    ]
    if "train" in sound and raw["train"]["epochs"] is not None:
        problems.append(Problem("train.epochs", "must be null where strings are drawn", raw["train"]["epochs"]))
    if "train" in sound and raw["train"]["steps"] is None:
        problems.append(Problem("train.steps", "must be given where strings are drawn", "null"))
    return problems


def _check_pairs(raw: Mapping[str, Any], sound: set[str], task: Task, model: Seq2Seq) -> list[Problem]:
    """What a list of pairs must have, and what it asks of the model."""
    train = raw["train"] if "train" in sound else {"steps": None, "epochs": 1}
    if (train["steps"] is None) == (train["epochs"] is None):
        given = f"are {train['steps']} and {train['epochs']}"
        return [Problem("train", f"one of steps and epochs must be given, and the other null, but they {given}")]
    if not {"data", "evaluate"} <= sound:
        return []
    data, evaluate = DataSettings(**raw["data"]), raw["evaluate"]
    source, target = task.state()["longest"]  # also of those that are only tested on
    needed, most = max(source + 2, target + 1), model.max_length
    if most is not None and needed > most:
        return [Problem("task", f"model.positions.max_length is {most}, and the longest pair needs {needed}")]
    problems = []
    try:
        task.batches_an_epoch(data.batch_size, data.trained)
    except ValueError as error:
        problems.append(Problem("data", f"{error} (data.min_length to data.max_length)"))
    try:
        task.test_pairs(evaluate["lengths"], lambda length: 1, evaluate["split"])
    except ValueError as error:
        problems.append(Problem("evaluate.lengths", str(error)))
    return problems
