"""What a person reads of `scripts/equivalence.py`: tables of differences, or what is wrong with a file."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lookback.equivalence import Probe, Row, agreement, leaks, transformer_agreement
from lookback.student import Finding, check

MEASURED = ("output", "weights", "gradients")
COLOURS = {"right": "green", "wrong": "red", "not there": "dim"}


def check_ours(console: Console) -> dict[str, Any]:
    """Compare all implementations, try all probes, and show what was found.

    Returns:
        the same for JSON; `ok` says whether all is well.
    """
    rows, whole, probes = agreement(), transformer_agreement(), leaks()
    console.print(_differences("Attention, by mask", rows, lambda row: (row.mask,)))
    console.print(_differences("The same, by who is compared", rows, _pair))
    console.print(_differences("The Transformer against nn.Transformer", whole, lambda row: (row.ours, row.mask)))
    console.print(_probes(probes))
    console.print("\ndifferences are the largest ones; where values are above 1, as a share of the largest of them")
    console.print(
        "control: how far the same change moves the outputs that must not change, made where they may see it"
    )
    wrong = [_row_told(row) for row in (*rows, *whole) if not row.ok]
    wrong += [_probe_told(probe) for probe in probes if not probe.ok]
    for line in wrong:
        console.print(f"WRONG {line}", markup=False)
    compared = len(rows) + len(whole)
    if wrong:
        console.print(f"{len(wrong)} of {compared + len(probes)} checks failed")
    else:
        console.print(f"all agree: {compared} comparisons within roundings; nothing leaks in {len(probes)} probes")
    found: dict[str, Sequence[Row | Probe]] = {"agreement": rows, "transformer": whole, "leaks": probes}
    return {"ok": not wrong, **{name: [_plain(part) for part in parts] for name, parts in found.items()}}


def _pair(row: Row) -> tuple[str, ...]:
    return row.ours, f"against {row.against}"


def _differences(title: str, rows: Sequence[Row], lines: Callable[[Row], tuple[str, ...]]) -> Table:
    """The largest differences of all rows with the same name, a line for each precision.

    Args:
        title: of the table.
        rows: any.
        lines: the name of a row, in lines that stand beside those of the precisions; at most as many.
    """
    table = _table(title)
    table.add_column("", no_wrap=True)
    table.add_column("precision", no_wrap=True)
    for heading in (*MEASURED, "allowed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in dict.fromkeys(map(lines, rows)):
        group = [row for row in rows if lines(row) == name]
        for place, precision in enumerate(dict.fromkeys(row.precision for row in group)):
            same = [row for row in group if row.precision == precision]
            cells = [_worst([getattr(row, what) for row in same]) for what in MEASURED]
            style = None if all(row.ok for row in same) else "red"
            line = name[place] if place < len(name) else ""
            table.add_row(line, precision, *cells, _short(same[0].tolerance), style=style)
    return table


def _table(title: str) -> Table:
    return Table(title=f"\n{title}", box=SIMPLE, title_justify="left", show_edge=False, collapse_padding=True)


def _worst(found: Sequence[float | None]) -> str:
    """The largest; one that is no number is worse than any."""
    numbers = [number for number in found if number is not None]
    return _short(max(numbers, key=lambda number: (math.isnan(number), number), default=None))


def _short(number: float | None) -> str:
    return "-" if number is None else "0" if number == 0 else f"{number:.1e}"


def _probes(probes: Sequence[Probe]) -> Table:
    table = _table("Leaks")
    for heading in ("tried", "where"):
        table.add_column(heading, no_wrap=True)
    for heading in ("leak", "gradient", "control"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("finite", no_wrap=True)
    for probe in probes:
        cells = (_short(probe.leak), _short(probe.gradient), _short(probe.control), "yes" if probe.finite else "no")
        table.add_row(probe.what, probe.where, *cells, style=None if probe.ok else "red")
    return table


def _row_told(row: Row) -> str:
    found = ", ".join(f"{what} {_short(getattr(row, what))}" for what in MEASURED)
    return (
        f"{row.ours} against {row.against}, {row.mask}, {row.precision}: {found}; allowed {_short(row.tolerance)}"
    )


def _probe_told(probe: Probe) -> str:
    found = f"leak {_short(probe.leak)}, gradient {_short(probe.gradient)}, control {_short(probe.control)}"
    return f"{probe.what}, {probe.where}: {found}{'' if probe.finite else ', not finite'}"


def _plain(found: Row | Probe) -> dict[str, Any]:
    """For JSON, which has no word for what is not a number."""
    values = asdict(found) | {"ok": found.ok}
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def check_file(console: Console, path: Path) -> dict[str, Any]:
    """Judge somebody's own file, and show what was found.

    Returns:
        the same for JSON; `ok` says whether all that is there is right.

    Raises:
        ValueError: if there is nothing to judge.
    """
    findings = check(path)
    width = max(len(finding.step) for finding in findings)
    for finding in findings:
        name = Text(f"{finding.step:<{width}}  ").append(finding.verdict, COLOURS[finding.verdict])
        if finding.verdict == "right" and finding.diagnosis:
            name.append(f"  ({finding.diagnosis})")
        console.print(name)
        if finding.verdict == "wrong":
            for line in (finding.diagnosis, *([f"hint: {finding.hint}"] if finding.hint else [])):
                console.print(Padding(Text(line), (0, 0, 0, 4), expand=False))
    console.print(_verdict(findings))
    return {"file": str(path), "ok": _ok(findings), "findings": [asdict(finding) for finding in findings]}


def _ok(findings: Sequence[Finding]) -> bool:
    return all(finding.verdict != "wrong" for finding in findings)


def _verdict(findings: Sequence[Finding]) -> str:
    there = [finding for finding in findings if finding.verdict != "not there"]
    wrong = [finding.step for finding in there if finding.verdict == "wrong"]
    if wrong:
        is_wrong = "is wrong" if len(wrong) == 1 else "are wrong"
        return f"{len(wrong)} of {len(there)} steps {is_wrong}; begin with {wrong[0]}"
    return "all that is there is right" if len(there) < len(findings) else "all is right"
