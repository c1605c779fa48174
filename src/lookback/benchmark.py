"""How fast ours is beside what people use today. On the CPU, in one process.

All take part in turn, a round each (A B C A B C ...), so that all meet the same state of the machine, and what is
compared is the ratio inside each round. A section is a function from `Work` to rows and figures; `SECTIONS` lists
them, and a new one is added there.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table

from lookback import peers_x
from lookback.contestants import X
from lookback.costs import checking, maps, starting, watching
from lookback.decoding_race import decoding
from lookback.flops import flops
from lookback.growth import growth
from lookback.learning_race import learning
from lookback.load import load
from lookback.machine import machine, peak_memory_mib
from lookback.races import recurrent, training, wide
from lookback.timing import Figure, Row, Work

Section = Callable[[Work], Sequence[Row | Figure]]


@dataclass(frozen=True)
class Report:
    """What `measure` found.

    Attributes:
        rows: comparisons of all sections.
        figures: numbers that nothing is beside.
        rounds: timed rounds of each section, at most.
        steps: batches in a round, at most.
        machine: processor, threads that torch uses, and versions; that of x-transformers if it is installed.
        peak_memory_mib: the most memory that the process has held so far, everything together, in MiB.
        section_seconds: what each section took, everything included.
        failures: sections that could not compare, such as contestants that did different work, and why; nothing
            else is in doubt.
        config: the resolved configuration.
    """

    rows: list[Row]
    figures: list[Figure]
    rounds: int
    steps: int
    machine: dict[str, str | int]
    peak_memory_mib: float
    section_seconds: dict[str, float]
    failures: dict[str, str]
    config: dict[str, Any]


SECTIONS: tuple[Section, ...] = (
    training,
    wide,
    recurrent,
    flops,
    decoding,
    maps,
    watching,
    checking,
    starting,
    growth,
    learning,
    load,
)


def chosen(names: Sequence[str]) -> list[Section]:
    """The sections of these names, in the order in which `SECTIONS` has them; none named = all.

    Raises:
        ValueError: naming a section that there is not, and those that there are.
    """
    known = {section.__name__: section for section in SECTIONS}
    for name in names:
        if name not in known:
            raise ValueError(f"section must be one of {', '.join(known)}, but is {name}")
    return [section for name, section in known.items() if not names or name in names]


def measure(
    rounds: int,
    steps: int,
    overrides: Sequence[str] = (),
    sections: Sequence[str] = (),
    announce: Callable[[str], None] = lambda name: None,
) -> Report:
    """Run sections at the sizes of configs/train.yaml.

    Args:
        rounds: timed rounds, at least 1; sections of which a round takes long do fewer.
        steps: batches in a round, at least 1.
        overrides: changes of the configuration, such as `data.batch_size=32`. Those of the model concern the
            Transformer, whose positions stay sinusoidal; `recurrent` takes the others and an unchanged `rnn`.
        sections: names; none = all.
        announce: told the name of each section before it runs.

    Raises:
        ConfigError: naming every problem with the overrides.
        ValueError: naming a section that there is not.
    """
    found: list[Row | Figure] = []
    spent: dict[str, float] = {}
    failures: dict[str, str] = {}
    todo, work = chosen(sections), Work.of(rounds, steps, overrides)
    for section in todo:
        announce(section.__name__)
        started = time.perf_counter()
        try:
            found += section(work)
        except (ArithmeticError, ValueError) as error:
            failures[section.__name__] = str(error)
        spent[section.__name__] = time.perf_counter() - started
    rows = [result for result in found if isinstance(result, Row)]
    figures = [result for result in found if isinstance(result, Figure)]
    version = peers_x.version()
    facts = {**machine(), **({X: version} if version else {})}
    return Report(rows, figures, rounds, steps, facts, peak_memory_mib(), spent, failures, work.config.raw)


def table(report: Report) -> Group:
    """A report as a person reads it."""
    shown = Table(title="Ours beside its peers", box=SIMPLE, title_justify="left")
    shown.add_column("measured")
    for heading in ("ours", "theirs", "ratio", "range"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in report.rows:
        ends = [_short(ratio) for ratio in (row.ratio_min, row.ratio_max)]
        several = len(row.rounds) > 1 and any(end != "-" for end in ends)
        spread = "-".join(ends) if several else "-"
        name = f"{row.name}, {row.unit}\nagainst {row.against}"
        shown.add_row(name, _short(row.ours), _short(row.theirs), _short(row.ratio), spread)
    parts: list[Table | str] = [f"FAILED {name}: {reason}" for name, reason in report.failures.items()]
    parts += [shown] if report.rows else []
    if report.figures:
        parts.append(_figures(report.figures))
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    return Group(
        *parts,
        f"medians of {report.rounds} rounds of {report.steps} steps, fewer where they take long; "
        "ratio = ours / theirs in a round; - = never, or one round",
        "ours lays several strings in a row, where the others pad; all train on the same strings",
        facts if X in report.machine else f"{facts}\n{X} is not installed: its rows are left out (extra `bench`)",
        f"peak memory of the process {report.peak_memory_mib:,.0f} MiB",
    )


def _figures(figures: Sequence[Figure]) -> Table:
    shown = Table(title="Figures, with 95 % intervals", box=SIMPLE, title_justify="left")
    shown.add_column("measured")
    for heading in ("value", "low", "high"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        values = (_short(value) for value in (figure.value, figure.low, figure.high))
        shown.add_row(f"{figure.name}, {figure.unit}", *values)
    return shown


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"
