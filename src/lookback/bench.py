"""Where an experiment works: it trains what a yaml of configs/experiment says, and hands back the runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lookback import compare, comparison, experiment
from lookback.comparison import Plan
from lookback.console import SteadyConsole
from lookback.launcher import Typed
from lookback.models.base import Seq2Seq
from lookback.results import Result
from lookback.stop import SIGNALS
from lookback.tasks.base import Task

Runs = dict[str, list[Result]]
"""Name of a model -> its runs, in the order of their seeds."""

DIVERGED = "failed: NonFiniteLossError"


class StoppedError(Exception):
    """Ctrl-C or SIGTERM while runs were trained; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"stopped by signal {code - SIGNALS}")
        self.code = code


class RunError(RuntimeError):
    """A run that an experiment needs has failed."""


@dataclass(frozen=True)
class Bench:
    """One experiment's place.

    Attributes:
        folder: for its runs.
        quick: whether a smaller experiment is asked for.
        plan: what is to be trained; None if nothing is.
        console: where progress is told.
    """

    folder: Path
    quick: bool
    plan: Plan | None
    console: SteadyConsole

    def train(self) -> Runs:
        """Train what is not there yet.

        Raises:
            StoppedError: if told to stop.
            RunError: if a run failed, unless its loss stopped being finite: that is a result.
        """
        assert self.plan is not None
        found, code = compare.train(self.plan, self.folder, self.console)
        if code > SIGNALS:
            raise StoppedError(code)
        for result in found:
            if result.problem and not result.problem.startswith(DIVERGED):
                raise RunError(f"{result.name} seed {result.seed}: {result.problem}")
        return {entry.name: [run for run in found if run.name == entry.name] for entry in self.plan.entries}


def make_plan(experiment_name: str, passed: Sequence[str]) -> Plan:
    """The comparison that an experiment is, with what was typed beside it.

    Raises:
        ConfigError: naming every problem.
    """
    typed = Typed("compare", (f"experiment={experiment_name}", *passed))
    return comparison.plan(typed.compose(), typed)


def load(result: Result) -> tuple[Task, Seq2Seq]:
    """The task, and the best weights of a run."""
    return experiment.load(result.folder)


def exact_match(result: Result, length: int) -> float:
    """Exact match of the final evaluation; 0 for a run whose loss stopped being finite."""
    return float(result.summary.get("exact_match", {}).get(str(length), 0.0)) if result.problem == "" else 0.0


def steps_to_99(result: Result) -> float | None:
    """Steps to the first validation with 99 % exact match at the longest trained length; None if there is none."""
    reached = result.reached()
    return float(reached[0]) if reached else None
