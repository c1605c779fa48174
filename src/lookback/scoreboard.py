"""A comparison in the terminal: one line of progress, the tables, and what must be known with them."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lookback.board import board_arguments
from lookback.sheets import Sheet
from lookback.terminal import call, shown_path


def announce(console: Console, folder: Path, headlines: Sequence[str]) -> None:
    """What a comparison begins with."""
    for headline in headlines:
        console.print(headline, markup=False, soft_wrap=True)
    console.print(f"comparison   {shown_path(folder)}", soft_wrap=True, markup=False)
    console.print("Ctrl-C saves and stops")


def report(console: Console, folder: Path) -> None:
    """What a comparison ends with."""
    console.print(f"\ntables and figures   {shown_path(folder)}", soft_wrap=True, markup=False)
    console.print(
        f"look at it           {call('tensorboard', board_arguments(shown_path(folder)))}",
        soft_wrap=True,
        markup=False,
    )


def show_sheets(console: Console, sheets: Sequence[Sheet], notes: Sequence[str]) -> None:
    """The tables of a comparison, and what must be known with them."""
    for sheet in sheets:
        for number, columns in enumerate(beside_one_another(sheet, console.width)):
            title = None if number else sheet.title
            table = Table(title=title, box=SIMPLE, title_justify="left", padding=0, show_edge=False)
            for column in columns:
                table.add_column(sheet.headings[column], justify="right" if column else "left", no_wrap=not column)
            for row in sheet.rows:
                table.add_row(*(escape(row[column]) for column in columns))
            console.print(table)
            console.print()
        console.print(f"{sheet.note}\n" if sheet.note else "", soft_wrap=True, markup=False)
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)


def beside_one_another(sheet: Sheet, width: int) -> list[list[int]]:
    """The columns of a sheet in blocks that fit on a terminal, each with the first column, the names.

    Args:
        sheet: whose headings and cells may be broken at spaces, names apart.
        width: of the terminal, in characters.
    """
    names, *others = ([row[at] for row in sheet.rows] for at in range(len(sheet.headings)))
    first = max(map(len, [sheet.headings[0], *names]))
    found, used = [[0]], first
    for column, cells in enumerate(others, start=1):
        words = [word for text in [sheet.headings[column], *cells] for word in text.split()]
        needed = 1 + max(map(len, words), default=0)
        if used + needed > width and len(found[-1]) > 1:
            found.append([0])
            used = first
        found[-1].append(column)
        used += needed
    return found


class ComparisonProgress:
    """One line for all runs of a comparison: a live bar on a terminal, and a line for each run that ends.

    Args:
        console: where to.
        runs: how many there are.
        steps: of all of them together.
    """

    def __init__(self, console: Console, runs: int, steps: int) -> None:
        self._console = console
        self._runs = runs
        self._ended = 0
        columns = (TextColumn("{task.fields[runs]}"), BarColumn(bar_width=16), TextColumn("{task.fields[text]}"))
        self._bar = Progress(
            *columns, TimeRemainingColumn(compact=True), console=console, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("compare", total=steps, runs=f"0/{runs} runs", text="")

    def update(self, steps: int, text: str) -> None:
        """Show how many steps are done, and what is going on."""
        self._bar.update(self._task, completed=steps, text=text)

    def ended(self, text: str) -> None:
        """Tell that a run has ended."""
        self._ended += 1
        self._bar.update(self._task, runs=f"{self._ended}/{self._runs} runs")
        self._console.print(f"{self._ended}/{self._runs}  {text}", soft_wrap=True, markup=False)

    def __enter__(self) -> "ComparisonProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
