"""Many runs -> one table: train what a plan asks for by Hydra's launcher, read the folders, write the tables."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lookback import (
    command_line,
    comparison,
    config,
    experiment,
    files,
    report,
    results,
    scoreboard,
    sheets,
    terminal,
)
from lookback.command_line import STOP_FILE
from lookback.comparison import Entry, Plan
from lookback.console import SteadyConsole
from lookback.groups import grouped
from lookback.launcher import Job, Outcome, run_jobs
from lookback.machine import code_version
from lookback.results import Result
from lookback.schema import ConfigError, Problem
from lookback.stop import SIGNALS, Stop
from lookback.watch import Watch, Watched

RUNS = Path("runs")  # where finished runs are looked for


def main() -> int:
    """The command `python scripts/compare.py`."""
    return command_line.launch(run, "compare", build=comparison.plan)


def run(plan: Plan, folder: Path, resume: bool) -> int:
    """Train what is missing, compare, and report.

    Args:
        plan: what is compared.
        folder: of the comparison.
        resume: never asked for; going on needs no folder.

    Returns:
        the exit code: 0, 1 if a run failed or none can be compared, or 128 + the signal that stopped it.
    """
    console = SteadyConsole(highlight=False)
    expected: dict[str, Sequence[int]] = {}
    unreadable: list[str] = []
    code = 0
    if plan.settings.runs:
        paths = results.run_folders([Path(os.path.expandvars(text)).expanduser() for text in plan.settings.runs])
        found, unreadable = results.read_all(paths)
    else:
        expected = {entry.name: plan.settings.seeds for entry in plan.entries}
        scoreboard.announce(console, folder, [headline(plan, entry) for entry in plan.entries])
        found, code = train(plan, folder, console)
    alike, aside = grouped(found)
    names = [group.name for group in alike]
    if plan.settings.runs and plan.settings.baseline not in [None, *names]:
        raise ConfigError([Problem("baseline", f"must be one of {', '.join(names)}", plan.settings.baseline)])
    baseline = plan.baseline or (names[-1] if names else "")
    notes = [*unreadable, *sheets.notes(alike, aside, expected)]
    report.write(folder, alike, aside, baseline, notes, plan.typed.overrides, console)
    if code > SIGNALS:
        again = "" if plan.settings.reuse else f" with hydra.run.dir={terminal.shown_path(folder)}"
        console.print(f"stopped; all is saved. The same command{again} goes on where it stopped", soft_wrap=True)
    return code or int(not alike)


class Planned:
    """One run of a plan: where it will be, and whether it is there.

    Args:
        entry: its model.
        seed: of weights and batches.
        folder: of the comparison.
    """

    def __init__(self, entry: Entry, seed: int, folder: Path) -> None:
        self.entry = entry
        self.seed = seed
        self.raw = entry.with_seed(seed)
        self.subfolder = comparison.run_folder(entry, seed)
        self.folder = folder / self.subfolder
        self.reused = False

    def take(self, earlier: Path) -> None:
        """Let an earlier run of the same configuration and code stand at this place, if there is none yet.

        One that has not finished is gone on with where it is.
        """
        if not self.folder.exists():
            self.folder.unlink(missing_ok=True)  # a link to what is gone
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.symlink_to(os.path.relpath(earlier.resolve(), self.folder.parent.resolve()))
        if self.folder.resolve() == earlier.resolve():
            self.reused = results.read_summary(earlier).get("status") == "finished"

    def result(self, error: str) -> Result:
        """What there is of it, after its job has ended.

        Args:
            error: that the job did not handle; the run does not count then, whatever is in its folder.
        """
        missing = Result(self.entry.name, self.folder, self.raw, {}, [], "unfinished: not begun")
        found = missing
        if (self.folder / "config.yaml").exists():
            found = results.read(self.folder, self.entry.name, self.reused)
        if error:
            return replace(found, raw=self.raw, problem=f"failed: {error}")
        return found if found.raw == self.raw else replace(missing, problem="unfinished: another run is there")


def train(plan: Plan, folder: Path, console: SteadyConsole) -> tuple[list[Result], int]:
    """Train all runs of a plan that are not there yet.

    Returns:
        the runs, good and bad, and the exit code so far.
    """
    planned = [Planned(entry, seed, folder) for seed in plan.settings.seeds for entry in plan.entries]
    known = earlier_runs(RUNS) if plan.settings.reuse else {}
    digests = {one.entry.name: config.task_of(one.raw).digest for one in planned} if known else {}
    for one in planned:
        earlier = known.get((config.digest(one.raw), digests.get(one.entry.name, "")))
        if earlier is not None:
            one.take(earlier)
    waiting = [one for one in planned if not one.reused]
    errors, code = (run_all(plan, folder, waiting, console)) if waiting else ({}, 0)
    return [one.result(errors.get(one.subfolder, "")) for one in planned], code


def headline(plan: Plan, entry: Entry) -> str:
    """A model and its size, beside that of the baseline."""
    base = next(other for other in plan.entries if other.name == plan.baseline)
    width = entry.raw["model"].get(comparison.WIDTH)
    share = f"{100 * entry.parameters / base.parameters - 100:+.1f} % of {base.name}'s"
    text = f"{entry.name}: {entry.parameters:,} parameters (d_model {width}"
    text += ")" if entry is base else f", {share})"
    stands = [f"{key}={value}" for key, value in plan.typed.overruled(entry.overrides).items()]
    return f"{text}; its own {', '.join(stands)} stands, not what was typed" if stands else text


def earlier_runs(root: Path) -> dict[tuple[str, str], Path]:
    """Runs that this very code made from start to end, or began: digests of configuration and pairs -> folder.

    A finished one comes first; one that another process is working on is left alone.
    """
    version, found = code_version(), dict[tuple[str, str], Path]()
    for path in sorted(root.rglob("summary.json")):
        summary = results.read_summary(path.parent)
        whole = (path.parent / "metrics.jsonl").exists() and (path.parent / "config.yaml").exists()
        if whole and summary.get("code_version") == version and not summary.get("changed"):
            key = (str(summary.get("config_digest")), str(summary.get("pairs_digest", "")))
            finished = summary.get("status") == "finished"
            if finished or (key not in found and not files.is_locked(path.parent)):
                found[key] = path.parent
    return found


def run_all(
    plan: Plan, folder: Path, planned: Sequence[Planned], console: SteadyConsole
) -> tuple[dict[str, str], int]:
    """Run the jobs, and watch them.

    Returns:
        the errors, by subfolder, and the exit code.
    """
    flag = folder / STOP_FILE
    flag.unlink(missing_ok=True)
    jobs = [Job(comparison.run_overrides(one.entry, one.seed), one.subfolder) for one in planned]
    updates = {one.entry.name: config.build(one.entry.raw | {"seed": 0}).train.updates for one in planned}
    watched = [Watched(one.entry.name, one.seed, one.folder, updates[one.entry.name]) for one in planned]
    progress = scoreboard.ComparisonProgress(console, len(planned), sum(one.steps for one in watched))
    with Stop() as stop, progress, Watch(watched, progress, stop, flag):
        try:
            outcomes = run_jobs(plan.typed, folder, jobs, partial(train_one, flag))
        except Exception as error:  # of the launcher itself, such as a worker that was killed
            told = Outcome(1, f"{type(error).__name__}: {error}".strip().splitlines()[0])
            done = [results.read_summary(one.folder).get("status") == "finished" for one in planned]
            outcomes = [Outcome(0) if finished else told for finished in done]
    flag.unlink(missing_ok=True)
    codes = [outcome.code for outcome in outcomes]
    signals = [code for code in codes if code > SIGNALS]
    code = SIGNALS + stop.signal if stop.signal else signals[0] if signals else max(codes)
    return {one.subfolder: outcome.error for one, outcome in zip(planned, outcomes, strict=True)}, code


def train_one(flag: Path, raw: dict[str, Any], folder: Path) -> int:
    """One job of a comparison, wherever the launcher runs it.

    Args:
        flag: a file that says stop.
        raw: the composed configuration of the job.
        folder: the run folder; what is there already is gone on with.
    """
    return experiment.work(flag, True, comparison.run_part(raw), folder)
