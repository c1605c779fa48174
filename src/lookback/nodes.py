"""Open nodes of a configuration: the class that each names, what its constructor asks for, and how it is made.

An open node (a task, a model, its positions, a claim) names a class in `_target_`, and the constructor's
keyword-only parameters are what the node must say: no more, no less.
"""

import collections.abc
import functools
import importlib
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lookback import schema
from lookback.rules import File
from lookback.schema import ConfigError, Problem


def target(node: Mapping[str, Any]) -> Any:  # noqa: ANN401 (whatever a yaml may name)
    """The class that a node names."""
    module, _, name = str(node["_target_"]).rpartition(".")
    return getattr(importlib.import_module(module), name)


def check_node(name: str, node: object, base: type) -> list[Problem]:
    """Check an open node, and the open nodes inside it, against the constructors they name."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        return [Problem(name, "must be a group of settings with a _target_", node)]
    problem = Problem(f"{name}._target_", f"must name a {base.__name__} inside lookback", node["_target_"])
    if not str(node["_target_"]).startswith("lookback."):
        return [problem]
    try:
        kind = target(node)
    except (ImportError, AttributeError, ValueError):
        return [problem]
    if not inspect.isclass(kind) or not issubclass(kind, base) or inspect.isabstract(kind):
        return [problem]
    keywords = schema.keywords(kind)
    inner = {key: hint for key, hint in keywords.items() if typing.get_origin(hint) is collections.abc.Callable}
    values = {key: value for key, value in node.items() if key != "_target_" and key not in inner}
    problems = schema.problems(name, {key: hint for key, hint in keywords.items() if key not in inner}, values)
    for key, hint in inner.items():
        made = typing.get_args(hint)[-1]
        problems += check_node(f"{name}.{key}", node.get(key), made)
    return problems


def factory(node: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that makes what the node says from what is known only at run time."""
    kind = target(node)
    nested = {key: factory(value) for key, value in node.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in node.items() if key != "_target_" and key not in nested}
    keywords = {key: hint for key, hint in schema.keywords(kind).items() if key in plain}
    return functools.partial(kind, **schema.coerced(keywords, plain), **nested)


def build_node(name: str, node: object, base: type) -> object:
    """What one open node says, made from its constructor's keyword-only parameters alone.

    Args:
        name: of the node, for problems.
        node: with a `_target_`, a subclass of `base`.
        base: the door that it must have.

    Raises:
        ConfigError: naming every problem.
    """
    problems = check_node(name, node, base)
    if problems:
        raise ConfigError(problems)
    return factory(typing.cast(Mapping[str, Any], node))()


def files(node: Mapping[str, Any]) -> list[str]:
    """The keys of a node that are paths; none of a node that `check_node` refuses."""
    with suppress(ImportError, AttributeError, ValueError, KeyError, TypeError):
        return [key for key, kind in schema.keywords(target(node)).items() if kind in (File, File | None)]
    return []


def located(node: object, here: Path) -> object:
    """The same node with its paths absolute, so that they hold anywhere; relative ones begin at `here`."""
    if not isinstance(node, Mapping):
        return node
    found = {key: node[key] for key in files(node) if isinstance(node.get(key), str) and node[key]}
    return {**node, **{key: _absolute(path, here) for key, path in found.items()}}


def _absolute(path: str, here: Path) -> str:
    return str(here / Path(os.path.expandvars(path)).expanduser())
