"""The figures of a comparison: what is drawn, and where."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer
from matplotlib.image import imread
from matplotlib.lines import Line2D

from conftest import write_run
from lookback import charts, results
from lookback.groups import Group


def group(
    folder: Path, name: str, *overrides: str, seeds: tuple[int, ...] = (0, 1), state: int | None = None
) -> Group:
    """A model whose scores fall with length and rise with the seed; state: how many numbers its decoder gets."""
    return Group(
        name,
        [
            results.read(
                write_run(
                    folder / f"{name}{seed}",
                    *overrides,
                    seed=seed,
                    exact_match={1: 1.0, 4: 0.75, 8: 0.25 + seed / 8, 10: 0.0},
                    validations=[(20, 0.25, 5.0 + seed), (40, 0.5, 11.0 + seed), (60, 0.75, 16.0 + seed)],
                    state_numbers=state,
                    tokens_per_second=1000.0 + 200 * seed,
                )
            )
            for seed in seeds
        ],
    )


@pytest.fixture
def groups(tmp_path: Path) -> list[Group]:
    """Three models; the last has one seed."""
    return [
        group(tmp_path, "rnn", "model=rnn"),
        group(tmp_path, "luong", "model=rnn_luong"),
        group(tmp_path, "transformer", seeds=(0,)),
    ]


@pytest.fixture
def states(tmp_path: Path) -> list[Group]:
    """One plain RNN at three widths, in no order."""
    return [
        group(tmp_path, f"state{size}", "model=rnn", f"model.d_model={size // 2}", state=size)
        for size in (24, 6, 60)
    ]


def test_exact_match_by_length_is_a_line_and_a_band_a_model_over_the_trained_range(groups: list[Group]) -> None:
    axes = charts.exact_match_by_length(groups).axes[0]
    assert [line.get_label() for line in lines(axes)] == ["rnn", "luong", "transformer"]
    first = lines(axes)[0].get_xydata()
    assert np.asarray(first).tolist() == [[1, 1.0], [4, 0.75], [8, 0.3125], [10, 0.0]]  # 0.25 and 0.375
    assert len(axes.collections) == 3
    heights = axes.collections[0].get_paths()[0].vertices
    at_8 = [height for place, height in np.asarray(heights) if place == 8]
    assert (min(at_8), max(at_8)) == (0, 1)  # 0.3125 ± 12.7062 * 0.0625, cut to what a share can be
    [trained] = axes.patches
    assert trained.get_extents().transformed(axes.transData.inverted()).x0 == pytest.approx(1)
    assert trained.get_extents().transformed(axes.transData.inverted()).x1 == pytest.approx(8)
    assert axes.get_xlabel().startswith("length of the source")
    assert axes.get_ylabel() == "exact match, decoded freely"
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["trained lengths", "rnn", "luong", "transformer"]


def lines(axes: Axes) -> list[Line2D]:
    """One a model: without the thin ones under dashes."""
    return [line for line in axes.lines if not str(line.get_label()).startswith("_")]


def flat(folder: Path, name: str, scores: dict[int, float]) -> Group:
    return Group(name, [results.read(write_run(folder / name, exact_match=scores))])


def test_lengths_that_reach_far_stand_on_a_logarithmic_axis_with_plain_numbers(tmp_path: Path) -> None:
    lengths = [20, 40, 100, 200, 500, 1000, 2000, 5000, 10000]
    figure = charts.exact_match_by_length([flat(tmp_path, "far", dict.fromkeys(lengths, 1.0))])
    charts.save(figure, tmp_path / "figure.png")
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["20", "100", "1,000", "10,000"]
    assert [label.get_text() for label in axes.get_xticklabels(minor=True)] == []
    low, high = axes.get_xlim()
    assert 1 < low < 20  # some of the trained range, 1 to 8, could not be seen otherwise
    assert high > 10000


@pytest.mark.parametrize(("lengths", "scale"), [((41, 820), "linear"), ((41, 821), "log"), ((7,), "linear")])
def test_the_axis_is_logarithmic_beyond_twenty_times(tmp_path: Path, lengths: tuple[int, ...], scale: str) -> None:
    figure = charts.exact_match_by_length([flat(tmp_path, "far", dict.fromkeys(lengths, 1.0))])
    assert figure.axes[0].get_xscale() == scale


def test_lines_lie_together_where_two_neighbours_are_the_same() -> None:
    flat, falling, low, crossing = (
        {1: 1.0, 2: 1.0, 3: 1.0},
        {1: 1.0, 2: 0.995, 3: 0.0},
        {1: 0.0, 2: 0.0},
        {1: 0.5, 2: 1.0},
    )
    assert charts.coinciding([flat, low, falling, crossing]) == [(0, 2), (0, 1), (1, 2), (0, 1)]
    assert charts.coinciding([flat, {1: 1.0, 3: 1.0}, falling]) == [(0, 3), (1, 3), (2, 3)]
    assert charts.coinciding([flat, {1: 1.0, 2: 0.98, 3: 1.0}]) == [(0, 1), (0, 1)]


def test_each_of_three_lines_on_one_another_has_a_third_of_the_way_and_of_the_marks(tmp_path: Path) -> None:
    scores = dict.fromkeys([1, 4, 8, 10, 12], 1.0)
    groups = [flat(tmp_path, name, scores) for name in ("a", "b", "c")]
    axes = charts.exact_match_by_length([*groups, flat(tmp_path, "d", {1: 0.5, 4: 0.25})]).axes[0]
    patterns = [line._dash_pattern for line in lines(axes)]  # type: ignore[attr-defined]
    dashes = [pattern[1] for pattern in patterns[:3]]
    assert dashes[0] is not None
    assert dashes[0] == dashes[1] == dashes[2]
    assert dashes[0][1] == pytest.approx(2 * dashes[0][0])
    starts = {round(-pattern[0] / dashes[0][0]) % 3 for pattern in patterns[:3]}
    assert starts == {0, 1, 2}
    assert [line.get_markevery() for line in lines(axes)] == [[0, 3], [1, 4], [2], [0, 1]]
    assert lines(axes)[3].get_linestyle() == "-"


def test_many_names_stand_beside_the_lines_and_many_lengths_have_no_marks(tmp_path: Path) -> None:
    scores = {length: 1 / length for length in range(41, 91)}
    groups = [flat(tmp_path, f"model{number}", scores) for number in range(14)]
    figure = charts.exact_match_by_length(groups)
    charts.save(figure, tmp_path / "figure.png")
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 1 + 14
    frame, whole = legend.get_window_extent(), figure.bbox
    assert frame.x0 > axes.get_window_extent().x1
    assert (frame.x1 < whole.x1, frame.y0 > whole.y0) == (True, True)
    assert [line.get_markevery() for line in lines(axes)] == [[]] * 14
    assert len({to_rgba(line.get_color()) for line in lines(axes)}) == 14


def test_a_band_is_as_wide_as_its_interval(tmp_path: Path) -> None:
    runs = [
        results.read(write_run(tmp_path / f"{seed}", seed=seed, exact_match={4: 0.5 + seed / 100}))
        for seed in (0, 1)
    ]
    axes = charts.exact_match_by_length([Group("x", runs)]).axes[0]
    heights = [height for _, height in np.asarray(axes.collections[0].get_paths()[0].vertices)]
    half = 12.7062 * 0.005  # of 0.50 and 0.51
    assert (min(heights), max(heights)) == (pytest.approx(0.505 - half), pytest.approx(0.505 + half))


def test_learning_curves_are_a_line_a_seed_against_steps_and_against_seconds(groups: list[Group]) -> None:
    left, right = charts.learning_curves(groups).axes
    assert len(left.lines) == len(right.lines) == 5
    assert np.asarray(left.lines[1].get_xydata()).tolist() == [[20, 0.25], [40, 0.5], [60, 0.75]]
    assert np.asarray(right.lines[1].get_xydata()).tolist() == [[6, 0.25], [12, 0.5], [17, 0.75]]
    assert (left.get_xlabel(), right.get_xlabel()) == ("step", "seconds of training")
    assert left.get_ylabel() == "exact match at length 8, validation"
    legend = left.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["rnn", "luong", "transformer"]


def test_speed_is_a_bar_a_model_in_three_panels(groups: list[Group]) -> None:
    axes = charts.speed(groups).axes
    assert [one.get_title() for one in axes] == [
        "target tokens/s, training",
        "target tokens/s, decoding freely",
        "sequential steps in a training pass",
    ]
    bars = [[bar for bar in one.containers if isinstance(bar, BarContainer)] for one in axes]
    assert [len(found) for found in bars] == [3, 3, 3]
    assert [found[0].patches[0].get_width() for found in bars] == [1100, 108, 19]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["rnn", "luong", "transformer"]
    assert axes[0].yaxis_inverted()  # the first on top


def test_a_model_has_one_colour_in_every_figure(groups: list[Group]) -> None:
    curves = charts.learning_curves(groups).axes[0].lines
    by_length = lines(charts.exact_match_by_length(groups).axes[0])
    bars = [bar for bar in charts.speed(groups).axes[0].containers if isinstance(bar, BarContainer)]
    for number, line in enumerate([0, 2, 4]):
        wanted = to_rgba(charts.colour(number))
        assert to_rgba(curves[line].get_color()) == to_rgba(by_length[number].get_color()) == wanted
        assert bars[number].patches[0].get_facecolor() == wanted
    assert charts.colour(0) != charts.colour(1) != charts.colour(2)


def test_the_bottleneck_is_a_map_of_state_and_length_in_order_of_size(states: list[Group]) -> None:
    figure = charts.bottleneck(states)
    assert figure is not None
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["6", "24", "60"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "4", "8", "10"]
    table = np.asarray(axes.images[0].get_array())
    assert table.tolist() == [[1.0] * 3, [0.75] * 3, [0.3125] * 3, [0.0] * 3]
    assert sorted(text.get_text() for text in axes.texts) == sorted(["1.00", "0.75", "0.31", "0.00"] * 3)
    line = np.asarray(axes.lines[0].get_ydata())
    lengths = np.array([6, 24, 60]) / np.log2(26)  # 1.28, 5.11 and 12.76 letters of 4.70 bits
    assert line == pytest.approx([(lengths[0] - 1) / 3, 1 + (lengths[1] - 4) / 4, 3 + (lengths[2] - 10) / 2])
    assert axes.get_ylim() == (-0.5, 3.5)  # so the last one leaves the map
    assert axes.get_xlabel().startswith("state size")
    assert axes.get_ylabel() == "length of the source"


def test_the_columns_of_the_bottleneck_stand_in_order_of_size_with_their_own_scores(tmp_path: Path) -> None:
    found = []
    for size in (24, 6, 60):
        folder = write_run(
            tmp_path / f"{size}",
            "model=rnn",
            f"model.d_model={size}",
            state_numbers=size,
            exact_match={4: size / 100, 8: size / 200},
        )
        found.append(Group(f"{size}", [results.read(folder)]))
    figure = charts.bottleneck(found)
    assert figure is not None
    assert np.asarray(figure.axes[0].images[0].get_array()).tolist() == [[0.06, 0.24, 0.6], [0.03, 0.12, 0.3]]


def test_there_is_no_bottleneck_unless_widths_alone_differ(states: list[Group], tmp_path: Path) -> None:
    turned = group(tmp_path, "turned", "model=rnn", "model.d_model=9", "model.source_order=reversed", state=18)
    assert charts.bottleneck([*states, turned]) is None
    assert charts.bottleneck(states[:2]) is None  # two points are no map
    luongs = [group(tmp_path, f"l{width}", "model=rnn_luong", f"model.d_model={width}") for width in (12, 16, 20)]
    assert charts.bottleneck(luongs) is None  # they have attention, and some numbers for each symbol
    unknown = group(tmp_path, "unknown", "model=rnn", "model.d_model=9")
    assert charts.bottleneck([*states, unknown]) is None


def test_a_saved_figure_is_not_blank(states: list[Group], tmp_path: Path) -> None:
    figure = charts.bottleneck(states)
    assert figure is not None
    charts.save(figure, tmp_path / "figure.png")
    picture = imread(tmp_path / "figure.png")
    assert min(picture.shape[:2]) > 150
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20  # colours


def test_one_model_with_one_seed_and_no_validation_can_be_drawn(tmp_path: Path) -> None:
    alone = [Group("x", [results.read(write_run(tmp_path / "run"))])]
    assert [len(axes.lines) for axes in charts.exact_match_by_length(alone).axes] == [1]
    assert [len(axes.lines) for axes in charts.learning_curves(alone).axes] == [1, 1]
    charts.save(charts.speed(alone), tmp_path / "figure.png")
    assert charts.bottleneck(alone) is None
