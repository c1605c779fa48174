"""What a comparison leaves: tables, a row a run, figures, and the same on the board and in the terminal."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lookback import board, charts, scoreboard, sheets
from lookback.console import SteadyConsole
from lookback.files import write_whole
from lookback.groups import Group
from lookback.results import Result


def write(
    folder: Path,
    groups: Sequence[Group],
    aside: Sequence[Result],
    baseline: str,
    notes: Sequence[str],
    typed: Sequence[str],
    console: SteadyConsole,
) -> None:
    """Write the tables, the runs and the figures, and show the tables.

    Args:
        folder: of the comparison.
        groups: what is compared, in order.
        aside: runs that do not count.
        baseline: the name of the group that the others are told apart from.
        notes: from `sheets.notes`.
        typed: what was typed to make it, for the record.
        console: where to.
    """
    tables = sheets.sheets(groups, baseline) if groups else []
    text = "\n".join([*(table.markdown() for table in tables), *(f"- {note}" for note in notes)]) + "\n"
    write_whole(folder / "table.md", text.encode())
    rows = [result.row(folder) for result in [*(run for group in groups for run in group.results), *aside]]
    write_rows(folder / "results.csv", rows)
    plain = [sheets.plain(group) for group in groups]
    whole = {"typed": list(typed), "baseline": baseline, "groups": plain, "notes": list(notes), "runs": rows}
    write_whole(folder / "results.json", (json.dumps(whole, indent=2) + "\n").encode())
    if groups:
        board.save_pictures(folder, draw(folder, groups))
    scoreboard.show_sheets(console, tables, notes)
    scoreboard.report(console, folder)


def draw(folder: Path, groups: Sequence[Group]) -> dict[str, Path]:
    """Draw the figures that have something to show: tag on the board -> PNG."""
    pictures = {}
    for chart in charts.CHARTS:
        figure = chart(groups)
        if figure is not None:
            path = pictures[f"compare/{chart.__name__}"] = folder / f"{chart.__name__}.png"
            charts.save(figure, path)
    return pictures


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write a csv with a row a run, in full precision."""
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(names), restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())
