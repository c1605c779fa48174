"""What a group of settings may say: types from a signature, compared with values by pydantic, told in our words."""

import difflib
import inspect
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pydantic
from pydantic import ConfigDict

from lookback.rules import File

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
WORDS = {  # pydantic's words, and ours
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid dictionary or instance of Schema": "a group of settings",
    "a valid list": "a list",
    "a valid string": "a text",
    "a valid boolean": "true or false",
    "List should have at least": "a list of at least",
    " after validation, not 0": "",
}


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

    def __reduce__(self) -> tuple[Any, ...]:
        """What sending it to another process needs."""
        return type(self), (self.problems,)


def keywords(target: type) -> dict[str, Any]:
    """What a node of this class must say: its constructor's keyword-only parameters and their types."""
    constructor = inspect.signature(target.__init__)  # type: ignore[misc]
    hints = typing.get_type_hints(target.__init__, include_extras=True)  # type: ignore[misc]
    kinds = constructor.parameters.values()
    return {kind.name: hints[kind.name] for kind in kinds if kind.kind is inspect.Parameter.KEYWORD_ONLY}


def unknown(key: str, known: Iterable[str], prefix: str = "", shown: Iterable[str] = ()) -> str:
    """The rule that an unknown key breaks, with the nearest valid name, or with those there are.

    Args:
        key: what was typed.
        known: what it may have meant; the last part of a name counts as the name.
        prefix: stands before every name.
        shown: names for when none is near; all known ones when left out.
    """
    known = list(known)
    near = [name for name in known if re.split(r"[./]", name)[-1] == key]
    near += difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        return f"no such key; the nearest is {prefix}{near[0]}"
    return f"no such key; there are {', '.join(prefix + name for name in shown or known) or 'none'}"


def _schema(types: Mapping[str, Any]) -> type[pydantic.BaseModel]:
    fields: Any = {key: (kind, ...) for key, kind in types.items()}
    return pydantic.create_model("Schema", __config__=STRICT, **fields)


def coerced(types: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the types they are declared with: 1 for a float is 1.0."""
    return _schema(types).model_validate(values).model_dump()


def problems(name: str, types: Mapping[str, Any], values: object) -> list[Problem]:
    """Let pydantic compare values with types, and say what it found in our words."""
    try:
        _schema(types).model_validate(values)
    except pydantic.ValidationError as error:
        return [_problem(name, found, types) for found in error.errors()]
    return []


def _problem(name: str, found: Any, types: Mapping[str, Any]) -> Problem:  # noqa: ANN401 (pydantic's dictionary)
    key = ".".join(filter(None, [name, *map(str, found["loc"])]))
    match found["type"]:
        case "extra_forbidden":
            return Problem(key, unknown(str(found["loc"][-1]), list(types), f"{name}."), found["input"])
        case "missing":
            return Problem(key, "is missing")
        case _:
            rule = found["msg"].removeprefix("Input should be ")
            for theirs, ours in WORDS.items():
                rule = rule.replace(theirs, ours)
            if found["loc"] and types.get(str(found["loc"][0])) == File:
                rule = rule.replace(WORDS["a valid string"], "the path of a file")
            return Problem(key, f"must be {rule}", found["input"])
