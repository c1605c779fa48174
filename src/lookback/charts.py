"""The figures of a comparison, by matplotlib on canvases of our own: no display, no global state."""

import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lookback.files import write_whole
from lookback.groups import Group
from lookback.intervals import Estimate, estimate

DPI = 110
COLOURS = (*colormaps["tab10"].colors, "black", "navy", "maroon", "darkgreen")  # type: ignore[attr-defined]
WIDE = 20  # lengths whose longest is so many times the shortest need a logarithmic axis
SAME = 0.01  # means no farther apart than this are one line to the eye
DASH = 4.0  # points of a dash where lines lie on one another
MARKED = 30  # lengths of a line that are marked; more are a line alone
INSIDE = 5  # names for which there is room among the lines


def colour(number: int) -> Any:  # noqa: ANN401 (whatever matplotlib takes)
    """The colour of the group of this number, the same in every figure."""
    return COLOURS[number % len(COLOURS)]


def exact_match_by_length(groups: Sequence[Group]) -> Figure:
    """Mean exact match against length with 95 % bands; the trained range is shaded.

    Lines that lie on one another share the way: each has the dashes that the others leave free.
    """
    inside = len(groups) <= INSIDE
    figure = Figure(figsize=(7 if inside else 9.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    shortest, longest = groups[0].results[0].trained
    trained = axes.axvspan(shortest, longest, color="0.93", label="trained lengths")
    lines: list[dict[int, Estimate]] = []
    for group in groups:
        found = {length: estimate(group.values(f"exact_match/{length}")) for length in group.lengths}
        lines.append({length: row for length, row in found.items() if row})
    together = coinciding([{length: row.mean for length, row in rows.items()} for rows in lines])
    for number, (group, rows) in enumerate(zip(groups, lines, strict=True)):
        _band(axes, rows, number, group.name, *together[number])
    _length_axis(axes, sorted({length for rows in lines for length in rows}), shortest)
    axes.set_xlabel("length of the source, marks not counted")
    axes.set_ylabel("exact match, decoded freely")
    axes.set_ylim(-0.03, 1.03)
    names = [
        Line2D([], [], marker="o", ms=4, color=colour(number), label=group.name)
        for number, group in enumerate(groups)
    ]
    beside: dict[str, Any] = {} if inside else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    axes.legend(handles=[trained, *names], fontsize=8, **beside)
    return figure


def coinciding(lines: Sequence[Mapping[int, float]]) -> list[tuple[int, int]]:
    """Which lines lie on one another, at two neighbouring lengths at least.

    Args:
        lines: length -> mean, of each line.

    Returns:
        for each line its place, from 0, among those that lie together, and how many these are.
    """
    members = [{number} for number in range(len(lines))]  # one and the same set for all that lie together
    for one, other in itertools.combinations(range(len(lines)), 2):
        shared = [length for length in sorted(lines[one]) if length in lines[other]]
        near = [abs(lines[one][length] - lines[other][length]) <= SAME for length in shared]
        if any(pair == (True, True) for pair in itertools.pairwise(near)):
            both = members[one] | members[other]
            for number in both:
                members[number] = both
    return [(sorted(found).index(number), len(found)) for number, found in enumerate(members)]


def _length_axis(axes: Axes, lengths: Sequence[int], shortest_trained: int) -> None:
    """A logarithmic axis where lengths reach far, with plain numbers at its ends and at powers of ten."""
    if not lengths or lengths[-1] <= WIDE * lengths[0]:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    axes.set_xscale("log")
    axes.set_xlim(
        max(shortest_trained, lengths[0] / 2) if shortest_trained < lengths[0] else None, lengths[-1] * 1.15
    )
    powers = [10**power for power in range(1, 10) if lengths[0] * 1.5 < 10**power < lengths[-1] / 1.5]
    ticks = [lengths[0], *powers, lengths[-1]]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _band(axes: Axes, rows: dict[int, Estimate], number: int, name: str, place: int, count: int) -> None:
    """A line of means with its interval, cut to 0..1; of lines that lie together each is seen, in its turn."""
    places, means = list(rows), [row.mean for row in rows.values()]
    if count > 1:
        axes.plot(places, means, linewidth=0.6, alpha=0.5, color=colour(number), label="_thin", zorder=1.9)
    style = "-" if count == 1 else ((count - place) * DASH, (DASH, (count - 1) * DASH))
    marked = range(place % max(1, len(places)), len(places), count) if len(places) <= MARKED else []
    axes.plot(
        places,
        means,
        marker="o",
        ms=4,
        markevery=list(marked),
        linestyle=style,
        color=colour(number),
        label=name,
    )
    low, high = ([np.clip(getattr(row, end), 0, 1) for row in rows.values()] for end in ("low", "high"))
    axes.fill_between(places, low, high, color=colour(number), alpha=0.15, linewidth=0)


def learning_curves(groups: Sequence[Group]) -> Figure:
    """Exact match on validation strings of the longest trained length, against steps and against seconds."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, group in enumerate(groups):
        for axes, horizontal in ((left, "step"), (right, "train/seconds")):
            for result in group.results:
                lines = [
                    line for line in result.history if horizontal in line and "val/longest_exact_match" in line
                ]
                axes.plot(
                    [line[horizontal] for line in lines],
                    [line["val/longest_exact_match"] for line in lines],
                    color=colour(number),
                    linewidth=1.2,
                    alpha=0.8,
                    label=group.name if result is group.results[0] else None,
                )
    first = groups[0].results[0]
    left.set_ylabel(f"exact match{'' if first.listed else f' at length {first.longest}'}, validation")
    left.set_xlabel("step")
    right.set_xlabel("seconds of training")
    left.set_ylim(-0.03, 1.03)
    left.legend(fontsize=8, title="one line a seed", title_fontsize=8)
    return figure


def speed(groups: Sequence[Group]) -> Figure:
    """Tokens a second in training and decoding, and sequential steps, a bar a model."""
    columns = {
        "training_tokens_per_second": "target tokens/s, training",
        "decoding_tokens_per_second": "target tokens/s, decoding freely",
        "sequential_steps": "sequential steps in a training pass",
    }
    figure = Figure(figsize=(10, 0.6 + 0.45 * max(3, len(groups))), layout="constrained")
    for axes, (measure, title) in zip(figure.subplots(1, 3, sharey=True), columns.items(), strict=True):
        for number, group in enumerate(groups):
            found = estimate(group.values(measure))
            if found:
                axes.barh(number, found.mean, xerr=found.half_width, color=colour(number), capsize=3)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.set_yticks(range(len(groups)), [group.name for group in groups])
    figure.axes[0].invert_yaxis()
    return figure


def bottleneck(groups: Sequence[Group]) -> Figure | None:
    """Exact match as a map of state size and length, for models without attention that differ in width alone.

    The line is where a source has as many bits, length x log2(letters), as the state has numbers.
    """
    sizes = [int(min(group.values("state_numbers"), default=0)) for group in groups]
    rest = {json.dumps({**group.results[0].raw["model"], "d_model": 0}, sort_keys=True) for group in groups}
    if len(set(sizes)) < 3 or len(rest) > 1 or 0 in sizes:
        return None
    order = sorted(range(len(groups)), key=lambda number: sizes[number])
    lengths = groups[0].lengths
    table = [
        [np.mean(groups[number].values(f"exact_match/{length}") or [np.nan]) for number in order]
        for length in lengths
    ]
    figure = Figure(figsize=(2.4 + 0.75 * len(order), 1.6 + 0.3 * len(lengths)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(table, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto", origin="lower")
    for row, values in enumerate(table):
        for column, value in enumerate(values):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=_ink(float(value)))
    bits = np.log2(groups[0].results[0].raw["task"]["alphabet_size"])
    heights = [_row_of(sizes[number] / bits, lengths) for number in order]  # with as many bits as numbers
    axes.plot(
        range(len(order)), heights, "r--", label=f"length x log2(letters) = {bits:.2f} bits a letter = state size"
    )
    axes.set_xticks(range(len(order)), [f"{sizes[number]}" for number in order])
    axes.set_yticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_ylim(-0.5, len(lengths) - 0.5)
    axes.set_xlabel("state size: numbers that pass from encoder to decoder")
    axes.set_ylabel("length of the source")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), fontsize=8)
    figure.colorbar(image, label="exact match, decoded freely")
    return figure


def _row_of(length: float, lengths: Sequence[int]) -> float:
    """Where a length lies among the rows of a map, beyond the last one too."""
    if length <= lengths[-1] or len(lengths) < 2:
        return float(np.interp(length, lengths, range(len(lengths))))
    return len(lengths) - 1 + (length - lengths[-1]) / (lengths[-1] - lengths[-2])


def _ink(value: float) -> str:
    return "black" if value > 0.6 else "white"


CHARTS: tuple[Callable[[Sequence[Group]], Figure | None], ...] = (
    exact_match_by_length,
    learning_curves,
    speed,
    bottleneck,
)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    write_whole(path, buffer.getvalue())
