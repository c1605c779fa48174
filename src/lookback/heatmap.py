"""One attention map in the terminal: in colours where it has them, else in the lesson's shades."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.style import Style
from rich.text import Text

from lookback.console import shades
from lookback.figures import COLOURS, OUTLINE, Panel, level
from lookback.lesson import ascii_heatmap
from lookback.symbols import seen

SHORT = {"<bos>": "^", "<eos>": "$"}
LONGEST = 6  # letters of a symbol
ANSWER = "[]"
COLOURFUL = ("256", "truecolor", "windows")  # of fewer colours, brightness would not grow with the weight
MARK = "["


def labels(symbols: Sequence[str]) -> list[str]:
    """Symbols as they stand at a map's edges: the marks as ^ and $, long ones cut, each on one line."""
    shown = [SHORT.get(symbol, seen(symbol)) for symbol in symbols]
    return [name if len(name) <= LONGEST else name[: LONGEST - 1] + "~" for name in shown]


def coloured(panel: Panel, weights: NDArray[np.floating]) -> Text:
    """A map as coloured cells, dark = 0 and bright = 1; the right cells hold a pair of brackets."""
    rows, columns = labels(panel.rows), labels(panel.columns)
    width = max(2, *(len(label) + 1 for label in columns))
    aside = max(len(label) for label in rows) + 1
    text = Text(no_wrap=True)
    text.append(" " * aside + "".join(f"{label:^{width}}" for label in columns) + "\n")
    right = set(panel.outlined)
    for at, (label, row) in enumerate(zip(rows, weights, strict=True)):
        text.append(f"{label:>{aside - 1}} ")
        for key, shade in enumerate(COLOURS[level(row)]):
            style = Style(bgcolor=_hex(shade), color=_hex(OUTLINE), bold=True)
            text.append(f"{ANSWER if (at, key) in right else '':^{width}}", style)
        text.append("\n")
    return text


def shaded(console: Console, panel: Panel, weights: NDArray[np.floating]) -> str:
    """A map in the lesson's shades, or in plain characters where those cannot be printed."""
    rows, columns = labels(panel.rows), labels(panel.columns)
    lines = ascii_heatmap(weights, rows, columns, shades(console)).splitlines()
    width = max(map(len, [*rows, *columns])) + 1  # of a cell, and of the rows' labels; the shade stands at its end
    for row, column in panel.outlined:
        at = width * (column + 2) - 2
        lines[row + 1] = lines[row + 1][:at] + MARK + lines[row + 1][at + 1 :]
    return "\n".join(lines) + "\n"


def show(console: Console, panel: Panel, weights: NDArray[np.floating]) -> None:
    """Print a map and how to read it.

    Args:
        console: where to.
        panel: names its rows and columns.
        weights: (query, key).
    """
    width = (len(panel.columns) + 1) * (max(map(len, labels([*panel.rows, *panel.columns]))) + 1)
    if console.is_terminal and width > console.width:
        console.print("(the map is too wide for this terminal: see the pictures)", markup=False)
        return
    marks = ", ^ = <bos>, $ = <eos>" if set(SHORT) & {*panel.rows, *panel.columns} else ""
    console.print(f"rows: {panel.row_axis}; columns: {panel.column_axis}{marks}", markup=False, soft_wrap=True)
    if console.color_system not in COLOURFUL or console.no_color:
        answer = f"; {MARK} = where the answer stands" if panel.outlined else ""
        console.print(f"the fullest cell is the largest weight{answer}\n", markup=False)
        console.print(shaded(console, panel, weights), markup=False, emoji=False, soft_wrap=True)
    else:
        answer = f", {ANSWER} = where the answer stands" if panel.outlined else ""
        console.print(f"dark = 0, bright = 1{answer}\n", markup=False)
        console.print(coloured(panel, weights), soft_wrap=True)


def _hex(colour: Sequence[int] | NDArray[np.uint8]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
