"""The figures of a comparison, by matplotlib on canvases of our own: no display, no global state."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lookback.groups import Group
from lookback.intervals import Estimate, estimate

DPI = 110
COLOURS = colormaps["tab10"].colors  # type: ignore[attr-defined]


def colour(number: int) -> tuple[float, float, float]:
    """The colour of the group of this number, the same in every figure."""
    return COLOURS[number % len(COLOURS)]  # type: ignore[no-any-return]


def exact_match_by_length(groups: Sequence[Group]) -> Figure:
    """Mean exact match against length with 95 % bands; the trained range is shaded."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    data = groups[0].results[0].raw["data"]
    axes.axvspan(data["min_length"], data["max_length"], color="0.93", label="trained lengths")
    for number, group in enumerate(groups):
        rows = {length: estimate(group.values(f"exact_match/{length}")) for length in group.lengths}
        _band(axes, {length: row for length, row in rows.items() if row}, number, group.name)
    axes.set_xlabel("length of the source, marks not counted")
    axes.set_ylabel("exact match, decoded freely")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(fontsize=8)
    return figure


def _band(axes: Axes, rows: dict[int, Estimate], number: int, name: str) -> None:
    """A line of means with its interval, cut to 0..1."""
    places = list(rows)
    axes.plot(places, [row.mean for row in rows.values()], "o-", ms=4, color=colour(number), label=name)
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
    left.set_ylabel(f"exact match at length {groups[0].results[0].longest}, validation")
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
    figure.savefig(path, dpi=DPI)
