"""Runs sorted into groups that may be averaged: the same configuration, seeds apart."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lookback.results import Result
from lookback.run_folder import class_name

LOGGING = ("board", "train.save_every")  # settings that no result depends on
LONGEST_NAME = 60  # characters of what differs that a name has room for; the notes have all of it


@dataclass(frozen=True)
class Group:
    """The runs of one model, alike but for their seeds.

    Attributes:
        name: of the model.
        results: those that count, one a seed, in the order of their seeds.
    """

    name: str
    results: list[Result] = field(default_factory=list)

    def by_seed(self, measure: str) -> dict[int, float]:
        """Seed -> a column of `Result.row`, where there is a value."""
        rows = [result.row() for result in self.results]
        return {row["seed"]: float(row[measure]) for row in rows if row.get(measure, "") != ""}

    def values(self, measure: str) -> list[float]:
        """The same without the seeds."""
        return list(self.by_seed(measure).values())

    @property
    def lengths(self) -> list[int]:
        """The lengths that all its runs were tested on."""
        sets = [set(map(int, result.summary["exact_match"])) for result in self.results]
        return sorted(set.intersection(*sets)) if sets else []

    @property
    def task(self) -> dict[str, Any]:
        """What its runs learned: see `Result.task`."""
        return self.results[0].task


def tasks(groups: Sequence[Group]) -> dict[str, str]:
    """Name -> its task in words, with the settings in which tasks differ; empty where all have the same task."""
    if not differing({group.name: group.task for group in groups}):
        return {}
    different = differing({group.name: group.results[0].raw["task"] for group in groups})
    shared = [key for key, values in different.items() if sum(v is not None for v in values.values()) > 1]
    words = {}
    for group in groups:
        own = {key: different[key][group.name] for key in shared if key != "_target_"}
        settings = [f"{key}={Path(str(value)).name}" for key, value in own.items() if value is not None]
        words[group.name] = " ".join([class_name(group.task), *settings])
    for group in groups:
        alike = [other for other in groups if words[other.name].partition(" pairs=")[0] == words[group.name]]
        if any(other.task != group.task for other in alike):  # files whose names do not tell them apart
            words[group.name] += f" pairs={group.task.get('pairs', 'unknown')}"
    return words


def signature(raw: Mapping[str, Any]) -> str:
    """What runs must have in common to be averaged: everything but the seed and how they are logged."""
    plain = {key: value for key, value in flat(raw).items() if key != "seed" and not key.startswith(LOGGING)}
    return json.dumps(plain, sort_keys=True)


def flat(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration as one level of dotted keys."""
    found: dict[str, Any] = {}
    for key, value in raw.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def differing(raws: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Keys that do not have the same value everywhere: key -> name -> value; None where there is no such key.

    Args:
        raws: name -> configuration.
    """
    flats = {name: flat(raw) for name, raw in raws.items()}
    keys = dict.fromkeys(key for found in flats.values() for key in found)
    table = {key: {name: found.get(key) for name, found in flats.items()} for key in keys}
    return {key: values for key, values in table.items() if len({json.dumps(v) for v in values.values()}) > 1}


def grouped(results: Sequence[Result]) -> tuple[list[Group], list[Result]]:
    """Sort runs into groups of one configuration, and set aside those that must not be averaged.

    Two groups of the same name get what differs into their names, or a number if that is too much.

    Returns:
        groups, and the runs that do not count, with `problem` saying why.
    """
    aside = [result for result in results if result.problem]
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if not result.problem:
            alike.setdefault((result.name, signature(result.terms)), []).append(result)
    names = _told_apart(alike)
    groups = []
    for key, members in alike.items():
        chosen: dict[int, Result] = {}
        for result in members:
            if result.seed in chosen:
                why = f"duplicate: the same configuration and seed as {chosen[result.seed].folder}"
                aside.append(renamed(result, names[key], why))
            else:
                chosen[result.seed] = renamed(result, names[key])
        groups.append(Group(names[key], [chosen[seed] for seed in sorted(chosen)]))
    return groups, aside


def renamed(result: Result, name: str, problem: str = "") -> Result:
    """The same run under another name."""
    return replace(result, name=name, problem=problem)


def _told_apart(alike: Mapping[tuple[str, str], list[Result]]) -> dict[tuple[str, str], str]:
    names = {}
    for name, mark in alike:
        twins = {other: members[0].terms for (twin, other), members in alike.items() if twin == name}
        own = {key: values[mark] for key, values in differing(twins).items() if key != "seed"}
        shown = ", ".join(_setting(key, value) for key, value in own.items() if not key.startswith(LOGGING))
        shown = shown if len(shown) <= LONGEST_NAME else f"number {list(twins).index(mark) + 1}"
        names[name, mark] = f"{name} ({shown})" if shown else name
    return names


def _setting(key: str, value: object) -> str:
    """A setting in a name; a class is told by the name of its yaml."""
    if key.endswith("._target_"):
        return class_name({"_target_": value})
    return f"{key}={value}"
