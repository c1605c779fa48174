"""Runs as their folders tell them."""

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookback import config
from lookback.console import printable
from lookback.nodes import files
from lookback.schema import ConfigError, Problem

REACHED = 0.99  # exact match at the longest trained length


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
        return self.trained[1]

    @property
    def trained(self) -> tuple[int, int]:
        """The shortest and the longest source that it learned from, as far as is known."""
        if "trained_lengths" in self.summary:
            shortest, longest = self.summary["trained_lengths"]
            return shortest, longest
        node = self.raw["data"]
        shortest, longest = int(node["min_length"]), int(node["max_length"])
        tested = [int(length) for length in self.summary.get("exact_match", {})] if self.listed else []
        return shortest, min(longest, max(tested, default=longest))

    @property
    def listed(self) -> bool:
        """Whether it was tested on a list of pairs."""
        return isinstance(self.summary.get("overall"), dict)

    @property
    def task(self) -> dict[str, Any]:
        """What was learned: its node of the configuration, with what files held in the place of their paths."""
        node: dict[str, Any] = self.raw["task"]
        digest = self.summary.get("pairs_digest")
        if not digest:
            return node
        paths = files(node)
        return {**{key: value for key, value in node.items() if key not in paths}, "pairs": digest}

    @property
    def terms(self) -> dict[str, Any]:
        """Its configuration, with `task` in the place of what was typed of it."""
        return {**self.raw, "task": self.task}

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
            **{f"{name}_beyond": value for name, value in (summary.get("beyond") or {}).items()},
            "validation_exact_match": summary.get("validation", {}).get("exact_match", ""),
            "validation_loss": summary.get("validation", {}).get("loss", ""),
            "steps_to_99": reached[0],
            "seconds_to_99": reached[1],
            "train_seconds": summary.get("train_seconds", ""),
            "training_tokens_per_second": summary.get("tokens_per_second", ""),
            "decoding_tokens_per_second": self.at_judged("decoding_tokens_per_second"),
            "state_numbers": summary.get("state_numbers") or "",
            "sequential_steps": summary.get("sequential_steps", ""),
            "peak_memory_mib": summary.get("peak_memory_mib", ""),
            **{name: machine.get(name, "") for name in ("threads", "processor", "device", "torch", "python")},
            "split": summary.get("split", ""),
            "data_digest": summary.get("data_digest", ""),
            "pairs_digest": summary.get("pairs_digest", ""),
            "config_digest": summary.get("config_digest", ""),
            "code_version": summary.get("code_version", ""),
            "reused": self.reused,
            "folder": os.path.relpath(self.folder, below or Path.cwd()),
        }
        for measure in ("exact_match", "token_accuracy"):
            row |= {f"{measure}/{length}": value for length, value in summary.get(measure, {}).items()}
        return row

    def at_judged(self, measure: str) -> float | str:
        """A measure by length, at the length `judged`, or of a whole list of pairs; empty if there is none."""
        if self.listed and measure in self.summary["overall"]:
            return float(self.summary["overall"][measure])
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
    for node in ("seed", "task", "model", "data", "train"):
        if node not in raw:
            raise ConfigError([Problem(str(folder / "config.yaml"), f"lacks {node}")])
    summary = read_summary(folder)
    if summary.get("status") == "finished" and not isinstance(summary.get("exact_match"), dict):
        raise ConfigError([Problem(str(folder / "summary.json"), "says finished, but has no results")])
    problem = {"finished": "", "failed": f"failed: {summary.get('reason', '')}"}.get(
        summary.get("status", ""), f"unfinished: {summary.get('status', 'it has no summary.json')}"
    )
    name = name or re.sub(r"[^\w.+-]", "?", str(summary.get("model", "?")))
    return Result(name, folder, raw, summary, history(folder), problem, reused)


def read_all(folders: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """Read run folders; those that cannot be read are told in a sentence each."""
    found, unreadable = [], []
    for folder in folders:
        try:
            found.append(read(folder))
        except ConfigError as error:
            unreadable.append(f"NOT COUNTED: {error}")
    return found, unreadable


def read_summary(folder: Path) -> dict[str, Any]:
    """A run's summary.json; empty if it cannot be read. Its texts steer no terminal, whoever wrote them."""
    with suppress(OSError, ValueError):
        found = _harmless(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
        return found if isinstance(found, dict) else {}
    return {}


def _harmless(value: Any) -> Any:  # noqa: ANN401 (whatever JSON may hold)
    if isinstance(value, dict):
        return {printable(key): _harmless(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_harmless(inner) for inner in value]
    return printable(value) if isinstance(value, str) else value


def history(folder: Path) -> list[dict[str, float]]:
    """The validations that a run has logged, in order, each with its `step`."""
    lines = []
    with suppress(OSError, UnicodeDecodeError), (folder / "metrics.jsonl").open(encoding="utf-8") as file:
        for text in file:
            if '"val/' not in text:
                continue
            with suppress(ValueError, TypeError):  # a line that is being written
                line = {"step": None, **json.loads(text)}
                if "val/exact_match" in line or "val/longest_exact_match" in line:
                    lines.append(line)
    merged: dict[int | None, dict[str, float]] = {}
    for line in lines:
        merged.setdefault(line["step"], {}).update(line)
    return [line for step, line in merged.items() if step is not None]


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
