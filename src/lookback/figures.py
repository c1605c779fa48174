"""Attention maps as pictures, drawn with matplotlib on canvases of our own: no display, no global state.

Rows are queries, columns are keys; in every picture the darkest colour is weight 0 and the brightest weight 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

CELL = 0.24  # inches; 19 pixels at DPI
DPI = 80
MARGIN = 1.1  # inches around a panel, for its labels
COLOURS = "magma"  # its brightness grows with the weight


@dataclass(frozen=True)
class Panel:
    """The frame of one map: its title, and a label for each row and column.

    Attributes:
        title: stands below the map.
        rows: one label a query.
        columns: one label a key.
        row_axis: what the rows are.
        column_axis: what the columns are.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    row_axis: str
    column_axis: str


class MapPicture:
    """Draws maps into a frame that is drawn once.

    Text is nearly all the cost of such a picture, and during training only the cells change.

    Args:
        panels: the maps to stand side by side.
    """

    def __init__(self, panels: Sequence[Panel]) -> None:
        widths = [CELL * len(panel.columns) + MARGIN for panel in panels]
        height = CELL * max(len(panel.rows) for panel in panels) + MARGIN
        figure = Figure(figsize=(sum(widths), height), dpi=DPI)
        self._canvas = FigureCanvasAgg(figure)
        self._images = []
        left = 0.0
        for panel, width in zip(panels, widths, strict=True):
            across, down = CELL * len(panel.columns), CELL * len(panel.rows)
            corner = ((left + MARGIN * 0.7) / sum(widths), 1 - (MARGIN * 0.7 + down) / height)
            axes = figure.add_axes((*corner, across / sum(widths), down / height))
            blank = np.zeros((len(panel.rows), len(panel.columns)))
            image = axes.imshow(blank, cmap=COLOURS, vmin=0.0, vmax=1.0, aspect="auto", animated=True)
            axes.set_xticks(range(len(panel.columns)), panel.columns, fontsize=8, rotation=90)
            axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=8)
            axes.xaxis.tick_top()
            axes.xaxis.set_label_position("top")
            axes.tick_params(length=0)
            axes.set_xlabel(panel.column_axis, fontsize=8)
            axes.set_ylabel(panel.row_axis, fontsize=8)
            axes.annotate(
                f"{panel.title}\ndark = 0, bright = 1",
                (0.0, 0.0),
                xycoords="axes fraction",
                xytext=(0.0, -4.0),
                textcoords="offset points",
                va="top",
                fontsize=7,
            )
            self._images.append((axes, image))
            left += width
        self._canvas.draw()
        self._frame = self._canvas.copy_from_bbox(figure.bbox)

    def draw(self, maps: Sequence[NDArray[np.floating]]) -> NDArray[np.uint8]:
        """Fill the panels.

        Args:
            maps: one (query, key) map a panel, weights from 0 to 1.

        Returns:
            (height, width, colour=3), 0..255.

        Raises:
            ValueError: if a map does not fit its panel.
        """
        self._canvas.restore_region(self._frame)
        for (axes, image), weights in zip(self._images, maps, strict=True):
            shape = image.get_array().shape  # type: ignore[union-attr]
            if weights.shape != shape:
                raise ValueError(f"a map of shape {weights.shape} does not fit a panel of shape {shape}")
            image.set_data(weights)
            axes.draw_artist(image)
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()
