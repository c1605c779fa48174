"""A step of the walk on the screen, in the reader's language, in tables that know how wide a letter is."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lookback.console import shades
from lookback.lesson import shade
from lookback.walk import STEPS, Step
from lookback.walk_parts import Facts, Grid, Label, Page, Part, Said, Setting, Shades, Values
from lookback.walk_words import WORDS

LONGEST = 12  # cells of a heading, or of a word of the sentence
LONGEST_NAME = 24  # cells of a row's name
INDENT = 2
GAP = 3  # between what stands side by side
SHADE_NAMES = ("blank", "light", "medium", "dark", "full")


def walk(console: Console, steps: Mapping[int, Step], setting: Setting, language: str, pause: bool) -> None:
    """Show steps one after another.

    Args:
        console: where to.
        steps: by number.
        setting: what they start from.
        language: of `WORDS`.
        pause: wait for Enter between them; Ctrl-D ends the walk.
    """
    screen = Screen(console, language)
    for place, (number, step) in enumerate(steps.items()):
        if pause and place > 0 and not screen.ask():
            return
        screen.show(number, step(setting))


class Screen:
    """Shows pages.

    Args:
        console: where to.
        language: of `WORDS`.
    """

    def __init__(self, console: Console, language: str) -> None:
        self._console = console
        self._words = WORDS[language]
        self._shades = shades(console)
        self._room = console.width - INDENT

    def show(self, number: int, page: Page) -> None:
        """Print what a step shows, its formula, its arrays, and what to notice."""
        title = Text(f"{number}/{len(STEPS)}  {self._say(f'{page.key}.title')}", style="bold")
        self._console.rule(title, align="left", style="none")
        self._line(self._say(f"{page.key}.shows", page.values))
        self._line()
        for formula in page.formula:
            self._line(" " * INDENT + formula)
        for row in page.parts:
            for shown in self._beside([self._part(part) for part in row]):
                self._line()
                self._console.print(Padding(shown, (0, 0, 0, INDENT), expand=False))
        self._line()
        self._line(Text(self._say("notice"), style="bold"))
        for notice in page.notices:
            self._line("- " + self._say(notice.key, notice.values).replace("\n", "\n" + " " * INDENT))
        self._line()

    def ask(self) -> bool:
        """Wait for Enter; False after Ctrl-D."""
        try:
            input(self._say("enter") + " ")
        except EOFError:
            self._line()
            return False
        self._line()
        return True

    def _line(self, line: str | Text = "") -> None:
        self._console.print(line, markup=False, emoji=False, soft_wrap=True)

    def _say(self, key: str, values: Values | None = None) -> str:
        """The words of a key with their values; long words of the sentence are cut."""
        cut = {name: value if not isinstance(value, str) else _cut(value) for name, value in (values or {}).items()}
        return self._words[key].format(**dict(zip(SHADE_NAMES, self._shades, strict=True)), **cut)

    def _label(self, label: Label) -> str:
        return label if isinstance(label, str) else self._say(label.key, label.values)

    def _beside(self, parts: Sequence[RenderableType]) -> Sequence[RenderableType]:
        """The parts side by side if there is room, else as they are."""
        if len(parts) == 1 or sum(self._console.measure(part).maximum + GAP for part in parts) - GAP > self._room:
            return parts
        row = Table.grid(padding=(0, GAP, 0, 0))
        row.add_row(*parts)
        return [row]

    def _part(self, part: Part) -> RenderableType:
        match part:
            case Grid():
                return self._grid(part)
            case Shades():
                drawn = [[char * 2 for char in row] for row in shade(part.weights, self._shades)]
                return self._matrix(_named(part.name, part.weights.shape), part.words, part.words, drawn)
            case Facts():
                return self._facts(part)

    def _grid(self, grid: Grid) -> RenderableType:
        numbers = grid.values
        columns = list(grid.columns)
        if grid.sums:
            numbers = np.concatenate([numbers, numbers.sum(axis=-1, keepdims=True)], axis=-1)
            columns.append(Said("sum"))
        cells = [
            [f"{number:.{grid.digits}f}" for number in row] for row in numbers.round(grid.digits) + 0.0
        ]  # no -0.00
        name = _named(grid.name, grid.values.shape) if grid.name else ""
        return self._matrix(name, grid.rows, columns, cells)

    def _matrix(
        self, name: str, rows: Sequence[Label], columns: Sequence[Label], cells: Sequence[Sequence[str]]
    ) -> RenderableType:
        """Cells under their headings; headings and names of rows are cut where there is no room for them."""
        widest = max(len(cell) for row in cells for cell in row)
        left = self._room - len(columns) * (widest + 1)
        names = [_cut(self._label(row), min(LONGEST_NAME, left)) for row in rows]
        aside = max(map(cell_len, names))
        heading = max(widest, min(LONGEST, (self._room - aside) // len(columns) - 1))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(justify="right", no_wrap=True)
        headings = [[_cut(line, heading) for line in self._label(column).split("\n")] for column in columns]
        width = max(widest, *(cell_len(line) for lines in headings for line in lines))
        for lines in headings:
            table.add_column(Text("\n".join(lines)), justify="right", no_wrap=True, min_width=width)
        for label, row in zip(names, cells, strict=True):
            table.add_row(Text(label), *row)
        return Group(Text(name), table) if name else table

    def _facts(self, facts: Facts) -> RenderableType:
        table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
        for heading in (self._say("array"), self._say("shape"), self._label(facts.heading)):
            table.add_column(Text(heading), no_wrap=True)
        for name, shape, fact in facts.rows:
            table.add_row(Text(name), Text(f"{shape}"), Text(self._label(fact)))
        return table


def _named(name: str, shape: tuple[int, ...]) -> str:
    return f"{name} {shape}"


def _cut(text: str, cells: int = LONGEST) -> str:
    """A text of at most so many cells; a letter may take two."""
    shown = Text(text)
    shown.truncate(cells, overflow="ellipsis")
    return shown.plain.replace(" …", "…")
