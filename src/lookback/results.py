"""Runs as their folders tell them, grouped into models; and all that must be said before they are compared."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lookback import config
from lookback.schema import ConfigError, Problem

REACHED = 0.99  # exact match at the longest trained length
LOGGING = ("board", "train.save_every")  # settings that no result depends on


@dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        name: of its model.
        folder: of the run.
        raw: its configuration.
        summary: its summary.json; empty if there is none.
        history: its validations in order, each with `step`.
        problem: why it does not count; empty if it does.
        reused: whether it was there before.
    """

    name: str
    folder: Path
    raw: dict[str, Any]
    summary: dict[str, Any]
    history: list[dict[str, float]]
    problem: str = ""
    reused: bool = False

    @property
    def seed(self) -> int:
        """Of weights and batches."""
        return int(self.raw["seed"])

    @property
    def longest(self) -> int:
        """The longest trained length."""
        return int(self.raw["data"]["max_length"])

    @property
    def judged(self) -> int | None:
        """The longest trained length that it was tested on; None if there is none."""
        lengths = [int(length) for length in self.summary.get("exact_match", {})]
        return max((length for length in lengths if length <= self.longest), default=None)

    def reached(self) -> tuple[int, float] | None:
        """Steps and seconds of training to the first validation with 99 % exact match at the longest length."""
        for line in self.history:
            if line.get("val/longest_exact_match", 0.0) >= REACHED:
                return int(line["step"]), line["train/seconds"]
        return None

    def row(self, below: Path | None = None) -> dict[str, Any]:
        """One line of results.csv, in full precision; empty where there is nothing to say.

        Args:
            below: the folder from which the run's is told.
        """
        reached = self.reached() or ("", "")
        summary, node = self.summary, self.raw
        machine = summary.get("machine", {})
        row: dict[str, Any] = {
            "name": self.name,
            "model": summary.get("model", ""),
            "task": summary.get("task", ""),
            "seed": node["seed"],
            "status": summary.get("status", "missing"),
            "problem": self.problem,
            "parameters": summary.get("parameters", ""),
            "d_model": node["model"].get("d_model", ""),
            "learning_rate": node["train"]["learning_rate"],
            "steps": summary.get("steps", ""),
            "batch_size": node["data"]["batch_size"],
            "tokens": summary.get("tokens", ""),
            "best_step": summary.get("best_step", ""),
            "exact_match": self.at_judged("exact_match"),
            "validation_exact_match": summary.get("validation", {}).get("exact_match", ""),
            "validation_loss": summary.get("validation", {}).get("loss", ""),
            "steps_to_99": reached[0],
            "seconds_to_99": reached[1],
            "train_seconds": summary.get("train_seconds", ""),
            "training_tokens_per_second": summary.get("tokens_per_second", ""),
            "decoding_tokens_per_second": self.at_judged("decoding_tokens_per_second"),
            "sequential_steps": summary.get("sequential_steps", ""),
            "peak_memory_mib": summary.get("peak_memory_mib", ""),
            "threads": machine.get("threads", ""),
            "processor": machine.get("processor", ""),
            "split": summary.get("split", ""),
            "data_digest": summary.get("data_digest", ""),
            "config_digest": summary.get("config_digest", ""),
            "code_version": summary.get("code_version", ""),
            "reused": self.reused,
            "folder": os.path.relpath(self.folder, below or Path.cwd()),
        }
        for measure in ("exact_match", "token_accuracy"):
            row |= {f"{measure}/{length}": value for length, value in summary.get(measure, {}).items()}
        return row

    def at_judged(self, measure: str) -> float | str:
        """A measure by length, at the length `judged`; empty if there is none."""
        found: float | str = self.summary.get(measure, {}).get(str(self.judged), "")
        return found


def read(folder: Path, name: str = "", reused: bool = False) -> Result:
    """Read a run folder.

    Args:
        folder: of the run.
        name: of its model; the class of its model when left out.
        reused: as in `Result`.

    Raises:
        ConfigError: if its configuration cannot be read.
    """
    raw = config.read(folder / "config.yaml")
    problems = config.check(raw)
    if problems:
        raise ConfigError(problems)
    summary = read_summary(folder)
    problem = {"finished": "", "failed": f"failed: {summary.get('reason', '')}"}.get(
        summary.get("status", ""), f"unfinished: {summary.get('status', 'it has no summary.json')}"
    )
    return Result(name or summary.get("model", "?"), folder, raw, summary, _history(folder), problem, reused)


def read_summary(folder: Path) -> dict[str, Any]:
    """A run's summary.json; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _history(folder: Path) -> list[dict[str, float]]:
    lines = []
    with suppress(OSError, UnicodeDecodeError):
        for text in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that is being written
                line = json.loads(text)
                if "val/exact_match" in line or "val/longest_exact_match" in line:
                    lines.append(line)
    merged: dict[int, dict[str, float]] = {}
    for line in lines:
        merged.setdefault(line["step"], {}).update(line)
    return list(merged.values())


def steps_done(folder: Path) -> int:
    """How many updates a run has logged so far, while it goes on."""
    with suppress(OSError, ValueError, IndexError, KeyError), (folder / "metrics.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 1000))
        return int(json.loads(file.read().splitlines()[-1])["step"])
    return 0


def run_folders(folders: Iterable[Path]) -> list[Path]:
    """Run folders among these and below them, each once; links are followed once.

    Raises:
        ConfigError: if there is none in one of them.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        configs = sorted(_below(folder))
        if not configs:
            raise ConfigError([Problem("runs", "no run folder is there or below", folder)])
        for path in configs:
            found.setdefault(path.parent.resolve(), path.parent)
    return list(found.values())


def _below(folder: Path) -> list[Path]:
    walked = os.walk(folder, followlinks=True)
    return [Path(inside) / "config.yaml" for inside, _, names in walked if "config.yaml" in names]


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
    """Keys that do not have the same value everywhere: key -> name -> value; what is one model's own is left out.

    Args:
        raws: name -> configuration.
    """
    flats = {name: flat(raw) for name, raw in raws.items()}
    keys = dict.fromkeys(key for found in flats.values() for key in found)
    table = {key: {name: found.get(key) for name, found in flats.items()} for key in keys}
    return {key: values for key, values in table.items() if len({json.dumps(v) for v in values.values()}) > 1}


def grouped(results: Sequence[Result]) -> tuple[list[Group], list[Result]]:
    """Sort runs into groups of one configuration, and set aside those that must not be averaged.

    Two groups of the same name get what differs into their names.

    Returns:
        groups, and the runs that do not count, with `problem` saying why.
    """
    aside = [result for result in results if result.problem]
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if not result.problem:
            alike.setdefault((result.name, signature(result.raw)), []).append(result)
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
        twins = {other: members[0].raw for (twin, other), members in alike.items() if twin == name}
        own = {key: values[mark] for key, values in differing(twins).items() if key != "seed"}
        shown = ", ".join(f"{key}={value}" for key, value in own.items() if not key.startswith(LOGGING))
        names[name, mark] = f"{name} ({shown})" if shown else name
    return names
