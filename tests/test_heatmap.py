"""A map in the terminal: colours where there are some, shades where there are none, and how to read both."""

import io
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from lookback.console import PLAIN_SHADES, SHADES
from lookback.figures import COLOURS, OUTLINE, Panel
from lookback.heatmap import coloured, labels, shaded, show
from lookback.lesson import ascii_heatmap

PANEL = Panel("abc", ["c", "b", "<eos>"], ["<bos>", "a", "b", "c", "<eos>"], "written", "read", [(0, 3), (1, 2)])
WEIGHTS = np.array([[0.0, 0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.25, 0.75]])


def console(
    encoding: str = "utf-8", *, colours: str | None = "truecolor", no_color: bool = False, width: int = 80
) -> tuple[Console, io.BytesIO]:
    stream = io.BytesIO()
    file = io.TextIOWrapper(stream, encoding=encoding, errors="strict", write_through=True)
    live = colours is not None
    made = Console(
        file=file,
        width=width,
        force_terminal=live,
        color_system=colours,  # type: ignore[arg-type]
        no_color=no_color,
        highlight=False,
    )
    return made, stream


def printed(panel: Panel, weights: NDArray[np.floating], encoding: str = "utf-8", **options: object) -> str:
    out, stream = console(encoding, **options)  # type: ignore[arg-type]
    show(out, panel, weights)
    return stream.getvalue().decode(encoding)


def backgrounds(line: str) -> list[tuple[tuple[int, int, int], str]]:
    """The coloured cells of a printed line: background and text."""
    found = re.findall(r"\x1b\[1;38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m([^\x1b]*)\x1b", line)
    assert all(tuple(map(int, cell[:3])) == OUTLINE for cell in found)
    return [((int(red), int(green), int(blue)), text) for *_, red, green, blue, text in found]


# ------------------------------------------------------------------------------------------------------- labels


def test_marks_are_short_and_long_symbols_are_cut() -> None:
    symbols = ["<bos>", "a", "<eos>", "<pad>", "sechs6", "sieben7", "^"]
    assert labels(symbols) == ["^", "a", "$", "<pad>", "sechs6", "siebe~", "^"]


# ------------------------------------------------------------------------------------------------------ colours


def test_a_cell_has_the_colour_of_its_weight_and_nothing_is_transposed() -> None:
    lines = printed(PANEL, WEIGHTS).splitlines()[-4:-1]
    for line, row in zip(lines, WEIGHTS, strict=True):
        wanted = [tuple(COLOURS[round(float(weight) * (len(COLOURS) - 1))].tolist()) for weight in row]
        assert [colour for colour, _ in backgrounds(line)] == wanted
    assert backgrounds(lines[0])[3][0] == tuple(COLOURS[-1].tolist())


def test_the_colour_of_a_weight_does_not_depend_on_the_map() -> None:
    quarter = printed(PANEL, WEIGHTS / 4).splitlines()[-4]
    assert backgrounds(quarter)[3][0] == tuple(COLOURS[round((len(COLOURS) - 1) / 4)].tolist())


def test_weights_that_rounding_put_past_the_ends_have_the_colours_of_the_ends() -> None:
    past = WEIGHTS.copy()
    past[0, 3], past[0, 0] = 1.0 + 1e-6, -1e-9
    first = backgrounds(printed(PANEL, past).splitlines()[-4])
    assert (first[3][0], first[0][0]) == (tuple(COLOURS[-1].tolist()), tuple(COLOURS[0].tolist()))


def test_brackets_stand_on_the_right_cells_and_on_no_other() -> None:
    lines = printed(PANEL, WEIGHTS).splitlines()[-4:-1]
    texts = [[text for _, text in backgrounds(line)] for line in lines]
    right = [(row, column) for row, line in enumerate(texts) for column, text in enumerate(line) if text.strip()]
    assert right == [(0, 3), (1, 2)]
    assert {text for line in texts for text in line} == {"[]", "  "}


def test_columns_stand_under_their_symbols_whatever_their_width() -> None:
    panel = Panel("", ["long~symbol", "x"], ["<bos>", "wide", "y"], "rows", "columns", [(1, 1)])
    text = coloured(panel, np.eye(2, 3)).plain
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0] == " " * 7 + "  ^  wide   y  "
    assert lines[1] == "long~~ " + " " * 15
    assert lines[2] == "     x " + " " * 5 + " []  " + " " * 5


def test_a_map_that_is_too_wide_is_not_drawn_on_a_terminal_and_never_wrapped_elsewhere() -> None:
    columns = ["<bos>", *"abcdefghijklmnopqrstuvwxyz", "<eos>"]
    panel = Panel("", ["a", "b"], columns, "rows", "columns")
    weights = np.full((2, 28), 1 / 28)
    assert "too wide" in printed(panel, weights, colours="truecolor", width=57).replace("\n", " ")
    for colours, width in (("truecolor", 58), (None, 40)):
        lines = printed(panel, weights, colours=colours, width=width).splitlines()
        assert len([line for line in lines if line]) == 2 + 1 + 2  # two of words, the symbols, the rows


def test_symbols_that_are_markup_stay_text() -> None:
    panel = Panel("", ["[red]", "[/]"], ["[b]", ":fire:"], "[i]rows", "columns", [(0, 0)])
    for colours in ("truecolor", None):
        text = re.sub(r"\x1b\[[\d;]*m", "", printed(panel, np.eye(2), colours=colours))
        for word in ("[red]", "[/]", "[b]", "[i]rows", ":fire:"):
            assert word in text


# ------------------------------------------------------------------------------------------------------- shades


def test_without_colours_it_is_the_map_of_the_lesson() -> None:
    text = printed(PANEL, WEIGHTS, colours=None)
    assert "\x1b" not in text
    lesson = ascii_heatmap(WEIGHTS, ["c", "b", "$"], ["^", "a", "b", "c", "$"])
    assert text.replace("[", " ").endswith(lesson + "\n")
    assert text.splitlines()[-4] == " c      [█  "  # before the shade of a right cell stands a bracket
    assert text.splitlines()[-3] == " b ▒  [▒    "
    assert "[" not in text.splitlines()[-2]


def test_brackets_stand_before_the_shades_of_right_cells_whatever_their_width() -> None:
    panel = Panel("", ["<pad>", "x"], ["wide", "y", "z"], "rows", "columns", [(0, 0), (1, 2)])
    lines = printed(panel, np.eye(2, 3) + np.eye(2, 3, 1), colours=None).splitlines()
    assert lines[-3:-1] == [
        " <pad>    [█     █      ",
        "     x           █    [█",
    ]


def test_where_colours_are_not_wanted_there_are_none() -> None:
    assert printed(PANEL, WEIGHTS, no_color=True) == printed(PANEL, WEIGHTS, colours=None)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_where_shades_cannot_be_printed_plain_characters_stand_for_them(encoding: str) -> None:
    text = printed(PANEL, WEIGHTS, encoding, colours=None)
    assert text.splitlines()[-4] == " c      [#  "
    assert text.splitlines()[-3] == " b :  [:    "
    assert text.splitlines()[-2] == " $       . *"


def test_both_kinds_of_shades_have_a_blank_for_nothing_and_as_many_steps() -> None:
    assert len(SHADES) == len(PLAIN_SHADES) == len(set(PLAIN_SHADES)) == 5
    assert SHADES[0] == PLAIN_SHADES[0] == " "
    assert PLAIN_SHADES.isascii()


@pytest.mark.parametrize("encoding", ["utf-8", "cp437"])
def test_encodings_that_have_shades_show_them(encoding: str) -> None:
    out, _ = console(encoding, colours=None)
    assert "█" in shaded(out, PANEL, WEIGHTS)


# -------------------------------------------------------------------------------------------------------- words


def test_a_map_says_how_to_read_it() -> None:
    first, second = printed(PANEL, WEIGHTS).splitlines()[:2]
    assert first == "rows: written; columns: read, ^ = <bos>, $ = <eos>"
    assert second == "dark = 0, bright = 1, [] = where the answer stands"


def test_only_what_is_on_the_map_is_explained() -> None:
    panel = Panel("", ["a", "b"], ["c", "d", "e"], "rows", "columns")
    for colours in ("truecolor", None):
        text = printed(panel, np.eye(2, 3), colours=colours)
        assert text.startswith("rows: rows; columns: columns\n")
        assert "answer" not in text


def test_a_symbol_that_would_break_a_line_does_not() -> None:
    assert labels(["\n", "\x1b[31m", "\udcff", "<eos>"]) == ["�", "�[31m", "�", "$"]
