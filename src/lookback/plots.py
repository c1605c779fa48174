"""Figures of measured numbers side by side: lines with intervals where something grows, bars where it does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lookback.charts import colour
from lookback.intervals import Estimate, estimate

Line = Mapping[float, Sequence[float]] | Mapping[str, Sequence[float]]
"""Where -> a value a seed: numbers are places on an axis, words are bars beside one another."""

Found = list[tuple[float | str, Estimate]]


@dataclass(frozen=True)
class Plot:
    """One set of axes.

    Attributes:
        lines: name -> line. Either all of them are over numbers, or all over the same words.
        across: label of the horizontal axis.
        up: label of the vertical axis.
        log_across: a logarithmic horizontal axis.
        log_up: a logarithmic vertical axis.
        shaded: the trained range.
        share: values are shares, from 0 to 1.
    """

    lines: Mapping[str, Line]
    across: str
    up: str
    log_across: bool = False
    log_up: bool = False
    shaded: tuple[float, float] | None = None
    share: bool = False


def draw(plots: Sequence[Plot]) -> Figure:
    """The figure: plots side by side, one colour a name in all of them."""
    figure = Figure(figsize=(5.2 * len(plots) + 0.8, 4.0), layout="constrained")
    names = list(dict.fromkeys(name for plot in plots for name in plot.lines))
    for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
        if plot.shaded:
            axes.axvspan(*plot.shaded, color="0.93", label="trained lengths")
        words = any(isinstance(place, str) for line in plot.lines.values() for place in line)
        for number, (name, line) in enumerate(plot.lines.items()):
            found = [(place, row) for place, values in line.items() if (row := estimate(list(values)))]
            limits = (0.0, 1.0) if plot.share else (-np.inf, np.inf)
            if words:
                _bars(axes, found, (number, len(plot.lines)), name, names.index(name), limits)
            else:
                _line(axes, found, name, names.index(name), limits)
        _finish(axes, plot)
    return figure


def _line(axes: Axes, found: Found, name: str, number: int, limits: tuple[float, float]) -> None:
    """Means and their intervals. Earlier lines are thicker: where lines lie on one another each is seen."""
    places, rows = zip(*sorted(found), strict=True) if found else ((), ())
    means, width = [row.mean for row in rows], max(1.0, 4.0 - 0.6 * number)
    axes.plot(places, means, marker="o", ms=3 + width, linewidth=width, color=colour(number), label=name)
    low, high = (np.clip([getattr(row, end) for row in rows], *limits) for end in ("low", "high"))
    axes.fill_between(places, low, high, color=colour(number), alpha=0.15, linewidth=0)


def _bars(
    axes: Axes, found: Found, place: tuple[int, int], name: str, tint: int, limits: tuple[float, float]
) -> None:
    """Means and their intervals, the bars of this name at one place of so many beside one another."""
    number, count = place
    width = 0.8 / count
    at = [place - 0.4 + width * (number + 0.5) for place in range(len(found))]
    means = [row.mean for _, row in found]
    ends = [np.clip([getattr(row, end) for _, row in found], *limits) for end in ("low", "high")]
    spread = np.abs(np.subtract(ends, means))
    axes.bar(at, means, width, yerr=spread, capsize=3, color=colour(tint), label=name)
    axes.set_xticks(range(len(found)), [str(place) for place, _ in found])


def _finish(axes: Axes, plot: Plot) -> None:
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    if plot.log_across:
        axes.set_xscale("log", base=2)
        places = sorted({float(place) for line in plot.lines.values() for place in line})
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)
    elif not any(isinstance(place, str) for line in plot.lines.values() for place in line):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if plot.log_up:
        axes.set_yscale("log")
    if plot.share:
        axes.set_ylim(-0.03, 1.03)
    if len(plot.lines) > 1 or plot.shaded:
        axes.legend(fontsize=8)
    if not plot.log_up and not plot.share:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
