"""Attention maps as pictures: a frame with all text, drawn once, and cells painted into it.

Rows are queries, columns are keys; in every picture the darkest colour is weight 0 and the brightest weight 1. No
display is needed and no global state is touched. Pictures are nearly all that watching a training costs, so a pixel
is one byte, the number of a colour, and Pillow writes the text, in a small part of the time of a plot's axes.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from lookback.files import write_whole
from lookback.fonts import USUAL, font_for
from lookback.symbols import plain, seen

CELL = 19  # pixels
TEXT = 0.62  # height of the text by that of a cell
PAD = 4  # pixels between text and cells
LONGEST_LABEL = 12  # letters
GAP = 14  # pixels between panels
LEVELS = 200  # of weights, from 0 to 1: the first colours of the palette
GREYS = 55  # of text, from black to white: the next ones
OUTLINE = (0, 229, 255)  # the last one
COLOURS: NDArray[np.uint8] = matplotlib.colormaps["magma"](np.linspace(0.0, 1.0, LEVELS), bytes=True)[:, :3]
PALETTE = np.concatenate(
    [COLOURS, np.linspace(0, 255, GREYS).round()[:, None].repeat(3, axis=1), [OUTLINE]]
).astype(np.uint8)
OUTLINE_WIDTH = 2  # pixels
SCALE = "dark = 0, bright = 1"
OUTLINED = "outlined: where the answer stands"


def level(weights: NDArray[np.floating]) -> NDArray[np.uint8]:
    """The number of each weight's colour among COLOURS, whose brightness grows with it; of the same shape."""
    number: NDArray[np.uint8] = np.rint((LEVELS - 1) * weights.clip(0.0, 1.0)).astype(np.uint8)
    return number


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture: (height, width), each pixel the number of its colour in PALETTE."""

    pixels: NDArray[np.uint8]

    def rgb(self) -> NDArray[np.uint8]:
        """(height, width, colour=3), 0..255."""
        return PALETTE[self.pixels]

    def png(self) -> bytes:
        """The content of a PNG file."""
        image, buffer = Image.fromarray(self.pixels), io.BytesIO()
        image.putpalette(PALETTE.tobytes())
        image.save(buffer, "PNG", compress_level=3)  # a third of the time of 6, for a fifth more bytes
        return buffer.getvalue()

    def save(self, path: Path) -> None:
        """Write a PNG file."""
        write_whole(path, self.png())


@dataclass(frozen=True)
class Panel:
    """The frame of one map: its title, and a label for each row and column.

    Attributes:
        title: stands below the map.
        rows: one label a query.
        columns: one label a key.
        row_axis: what the rows are.
        column_axis: what the columns are.
        outlined: cells, as (row, column), around which a line is drawn.
        labelled: whether the labels are shown: a picture of many maps shows them at its edges.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    row_axis: str
    column_axis: str
    outlined: Sequence[tuple[int, int]] = ()
    labelled: tuple[bool, bool] = (True, True)


@dataclass(frozen=True)
class _Place:
    """Where the cells of a panel lie in a picture: the pixels of their top left corner, and how many there are."""

    top: int
    left: int
    shape: tuple[int, int]


@dataclass(frozen=True)
class Label:
    """A text in a picture: its pixels, counted from the top left corner, and whether it reads upwards."""

    text: str
    top: int
    left: int
    pixels: NDArray[np.uint8]
    upwards: bool = False

    @property
    def bottom(self) -> int:
        """The row of pixels below it."""
        return self.top + int(self.pixels.shape[0])

    @property
    def right(self) -> int:
        """The column of pixels after it."""
        return self.left + int(self.pixels.shape[1])


class MapPicture:
    """Draws maps into a frame that is drawn once; during training only the cells change.

    Args:
        panels: the maps, row by row.
        per_row: how many stand side by side; all of them when left out.
        cell: pixels of a cell's side.
        note: stands below them all.

    Attributes:
        labels: all text of the frame.
    """

    def __init__(
        self, panels: Sequence[Panel], per_row: int | None = None, cell: int = CELL, note: str = ""
    ) -> None:
        across = min(per_row or len(panels), len(panels))
        grid = [panels[start : start + across] for start in range(0, len(panels), across)]
        self._cell = cell
        self._write = Writer(round(cell * TEXT))
        line = self._write.height + PAD
        aside = [self._room([row[at] for row in grid if at < len(row)], 0) for at in range(across)]
        above = [self._room(row, 1) for row in grid]
        widths = [max(self._size(row[at])[1] for row in grid if at < len(row)) for at in range(across)]
        heights = [max(self._size(panel)[0] for panel in row) for row in grid]
        lefts, tops = _starts(widths, aside, 0), _starts(heights, above, line)
        notes = [note, SCALE, OUTLINED if any(panel.outlined for panel in panels) else ""]
        caption = self._write(", ".join(filter(None, notes)))
        bottom = tops[-1] + heights[-1] + line
        self.labels = [replace(caption, top=bottom + PAD, left=GAP)]
        self._places = []
        for row, top in zip(grid, tops, strict=True):
            for panel, left in zip(row, lefts, strict=False):
                self._places.append(_Place(top, left, (len(panel.rows), len(panel.columns))))
                self.labels += self._panel_labels(panel, top, left)
        width = max(lefts[-1] + widths[-1], *(label.right for label in self.labels)) + GAP
        self._frame = np.full((self.labels[0].bottom + PAD, width), LEVELS + GREYS - 1, dtype=np.uint8)
        for label in self.labels:
            self._frame[label.top : label.bottom, label.left : label.right] = label.pixels
        self._outlines = self._outline(panels)

    def draw(self, maps: Sequence[NDArray[np.floating]]) -> Picture:
        """Fill the panels.

        Args:
            maps: one (query, key) map a panel, weights from 0 to 1.

        Raises:
            ValueError: if a map does not fit its panel.
        """
        pixels = self._frame.copy()
        for place, weights in zip(self._places, maps, strict=True):
            if weights.shape != place.shape:
                raise ValueError(f"a map of shape {weights.shape} does not fit a panel of shape {place.shape}")
            cells = level(weights).repeat(self._cell, axis=0).repeat(self._cell, axis=1)
            pixels[place.top : place.top + cells.shape[0], place.left : place.left + cells.shape[1]] = cells
        pixels[self._outlines] = len(PALETTE) - 1
        return Picture(pixels)

    def _room(self, panels: Sequence[Panel], axis: int) -> int:
        """The pixels that the labels of an axis need beside some panels: 0 = rows, on the left; 1 = columns."""
        shown = [(panel.rows, panel.columns)[axis] for panel in panels if panel.labelled[axis]]
        longest = max((self._write.width(_cut(symbol)) for row in shown for symbol in row), default=0)
        return max(longest, self._write.height) + self._write.height + 3 * PAD if shown else 0

    def _size(self, panel: Panel) -> tuple[int, int]:
        """Height and width that a panel takes: of its cells, or of the texts along them, if they are longer."""
        names = [
            self._write.width(name) if shown else 0
            for name, shown in zip((panel.row_axis, panel.column_axis), panel.labelled, strict=True)
        ]
        high, wide = len(panel.rows) * self._cell, len(panel.columns) * self._cell
        return max(high, names[0]), max(wide, names[1], self._write.width(panel.title))

    def _panel_labels(self, panel: Panel, top: int, left: int) -> list[Label]:
        """The title of a panel whose cells begin there, its symbols, and the names of its axes."""
        write, cell = self._write, self._cell
        height, width = len(panel.rows) * cell, len(panel.columns) * cell
        found = [replace(write(panel.title), top=top + height + PAD, left=left)]
        if panel.labelled[0]:
            for at, symbol in enumerate(panel.rows):
                text = write(_cut(symbol))
                middle = top + at * cell + (cell - write.height) // 2
                found.append(replace(text, top=middle, left=left - PAD - text.right))
            name = write(panel.row_axis, upwards=True)
            middle = top + max(0, height - name.bottom) // 2
            found.append(replace(name, top=middle, left=left - self._room([panel], 0)))
        if panel.labelled[1]:
            for at, symbol in enumerate(panel.columns):
                text = write(_cut(symbol), upwards=len(symbol) > 1)
                middle = left + at * cell + (cell - text.right) // 2
                found.append(replace(text, top=top - PAD - text.bottom, left=middle))
            name = write(panel.column_axis)
            middle = left + max(0, width - name.right) // 2
            found.append(replace(name, top=top - self._room([panel], 1), left=middle))
        return found

    def _outline(self, panels: Sequence[Panel]) -> NDArray[np.bool_]:
        """The pixels of all outlines."""
        found, cell = np.zeros(self._frame.shape, dtype=bool), self._cell
        line = OUTLINE_WIDTH if cell >= CELL else 1
        for panel, place in zip(panels, self._places, strict=True):
            for row, column in panel.outlined:
                top, left = place.top + row * cell, place.left + column * cell
                found[top : top + cell, left : left + cell] = True
                found[top + line : top + cell - line, left + line : left + cell - line] = False
        return found


class Writer:
    """Turns text into pixels, each text once.

    Args:
        size: of the font, in pixels.

    Attributes:
        height: of every text, in pixels.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._fonts = {USUAL: ImageFont.truetype(USUAL, size)}
        self._ascent, descent = self._fonts[USUAL].getmetrics()
        self.height = self._ascent + descent
        self._written: dict[tuple[str, bool], Label] = {}

    def width(self, text: str) -> int:
        """Of a text, in pixels."""
        return math.ceil(self._font(text).getlength(plain(text)))

    def _font(self, text: str) -> ImageFont.FreeTypeFont:
        path = font_for(plain(text))
        if path not in self._fonts:
            self._fonts[path] = ImageFont.truetype(path, self._size)
        return self._fonts[path]

    def __call__(self, text: str, *, upwards: bool = False) -> Label:
        """A text as a label at the top left corner."""
        if (text, upwards) not in self._written:
            image = Image.new("L", (max(1, self.width(text)), self.height), 255)
            ImageDraw.Draw(image).text((0, self._ascent), plain(text), fill=0, font=self._font(text), anchor="ls")
            grey = np.asarray(image) / 255
            pixels = (LEVELS + np.rint((GREYS - 1) * grey)).astype(np.uint8)
            self._written[text, upwards] = Label(text, 0, 0, np.rot90(pixels) if upwards else pixels, upwards)
        return self._written[text, upwards]


def _cut(label: str) -> str:
    """A label as it is shown: on one line, and not too long."""
    shown = seen(label)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def _starts(sizes: Sequence[int], before: Sequence[int], after: int) -> list[int]:
    """Where each of several boxes starts that follow one another, each with room before and after it."""
    starts, end = [], 0
    for size, room in zip(sizes, before, strict=True):
        starts.append(end + GAP + room)
        end = starts[-1] + size + after
    return starts
