"""What examining claims leaves: a report with every claim's numbers, rule, figure and verdict."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lookback import charts, plots
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Check, Claim, Numbers, verdict
from lookback.files import write_whole
from lookback.terminal import shown_path

RULE = (
    "A claim held if all of its checks hold; it did not hold here if one that is marked *core* does not; else it "
    "held in part. The checks are in the code beside the experiment, and were written before it ran; where one was "
    "changed after a trial, the claim's notes say so."
)


@dataclass(frozen=True)
class Examined:
    """One claim with what was found.

    Attributes:
        name: of its yaml.
        claim: see `Claim`.
        numbers: see `Numbers`.
        seconds: that it took.
        problem: why there are no numbers; empty if there are.
        taken: the folder that the numbers were taken from, if they were there before.
        machine: where they were measured.
    """

    name: str
    claim: Claim
    numbers: Numbers
    seconds: float
    problem: str = ""
    taken: Path | None = None
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def checks(self) -> list[Check]:
        """The rule, with what was found."""
        return [] if self.problem else self.claim.checks(self.numbers)

    @property
    def verdict(self) -> str:
        """In words."""
        return self.problem or verdict(self.checks)


def write(folder: Path, done: Sequence[Examined], quick: bool, typed: Sequence[str]) -> None:
    """Write report.md and the figures.

    Args:
        folder: of the report.
        done: the claims so far.
        quick: whether the experiments were the smaller ones.
        typed: what was typed, for the record.
    """
    for one in done:
        if not one.problem:
            charts.save(plots.draw(one.claim.plots(one.numbers)), folder / one.name / "figure.png")
    write_whole(folder / "report.md", markdown(done, quick, typed).encode())


def markdown(done: Sequence[Examined], quick: bool, typed: Sequence[str]) -> str:
    """The whole report."""
    own = [text for text in typed if not text.startswith(("hydra.mode=", "hydra.run.dir="))]
    command = " ".join(["python scripts/claims.py", *own])
    lines = ["# The claims of the lessons, tried", "", f"`{command}`", "", RULE, ""]
    if quick:
        lines += ["These are the quick experiments: shorter strings, fewer steps, fewer seeds.", ""]
    lines += [*verdicts(done), ""]
    for one in done:
        lines += _section(one)
    machines = Counter("; ".join(f"{key} {value}" for key, value in one.machine.items()) for one in done)
    lines += ["---", "", *(f"Measured on: {words}" for words in machines if words)]
    return "\n".join(lines) + "\n"


def verdicts(done: Sequence[Examined]) -> list[str]:
    """The table of verdicts."""
    lines = ["| claim | verdict | checks that hold |", "| --- | --- | --: |"]
    for one in done:
        checks = one.checks
        held = f"{sum(check.holds for check in checks)} of {len(checks)}" if checks else "-"
        lines.append(f"| [{one.name}](#{one.name}): {one.claim.sentence} | **{one.verdict}** | {held} |")
    return lines


def _section(one: Examined) -> list[str]:
    claim = one.claim
    lines = [f"## {one.name}", "", f"**{claim.sentence}** ({claim.lesson})", "", claim.setup, ""]
    if one.problem:
        return [*lines, f"**{one.problem}**", ""]
    lines += [f"Verdict: **{one.verdict}**.", ""]
    lines += ["| check | holds | found |", "| --- | :-: | --- |"]
    for check in one.checks:
        core = "*core*: " if check.core else ""
        found = check.found if check.holds else f"{check.found}. Likely reason: {check.otherwise}"
        lines.append(f"| {core}{_cell(check.rule)} | {'yes' if check.holds else 'no'} | {_cell(found)} |")
    lines += ["", f"![{one.name}]({one.name}/figure.png)", ""]
    lines += [table.markdown() for table in claim.tables(one.numbers)]
    lines += [f"- {note}" for note in claim.notes(one.numbers)]
    return [*lines, f"- {one.seconds:.0f} seconds.", ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def show(console: Console, done: Sequence[Examined], folder: Path) -> None:
    """The verdicts, the checks that do not hold, and where the report is."""
    colours = {HELD: "green", IN_PART: "yellow", NOT_HERE: "red"}
    table = Table(box=SIMPLE, padding=0, show_edge=False, title="verdicts", title_justify="left")
    for heading in ("claim", "verdict", "checks"):
        table.add_column(heading)
    for one in done:
        held = f"{sum(check.holds for check in one.checks)} of {len(one.checks)}"
        words = f"[{colours.get(one.verdict, 'red')}]{escape(one.verdict)}[/]"
        table.add_row(one.name, words, held)
    console.print()
    console.print(table)
    for one in done:
        for check in one.checks:
            if not check.holds:
                text = f"{one.name}: not so that {check.rule} ({check.found}); likely because {check.otherwise}"
                console.print(text, soft_wrap=True, markup=False)
    console.print(f"\nreport       {shown_path(folder / 'report.md')}", soft_wrap=True, markup=False)
