"""A comparison in the terminal."""

import io
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from lookback import scoreboard, terminal
from lookback.scoreboard import ComparisonProgress
from lookback.sheets import Sheet


def console(*, live: bool = False, width: int = 80) -> tuple[Console, io.BytesIO]:
    stream = io.BytesIO()
    file = io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
    colours: Literal["standard"] | None = "standard" if live else None
    return Console(file=file, width=width, force_terminal=live, color_system=colours, highlight=False), stream


def test_progress_is_a_line_for_each_run_that_ends_where_there_is_no_terminal() -> None:
    out, stream = console()
    with ComparisonProgress(out, 3, 180) as progress:
        for steps in range(0, 181, 20):
            progress.update(steps, "rnn seed 0")
        progress.ended("rnn seed 0: exact match 0.5 at length 8, 2 s of training")
        progress.ended("x" * 100)
    text = stream.getvalue().decode()
    assert text.splitlines() == [
        "1/3  rnn seed 0: exact match 0.5 at length 8, 2 s of training",
        "2/3  " + "x" * 100,
    ]
    assert "\x1b" not in text


def test_progress_on_a_terminal_shows_runs_what_goes_on_and_the_time_left() -> None:
    out, stream = console(live=True)
    with ComparisonProgress(out, 4, 240) as progress:
        progress.update(60, "rnn seed 0, transformer seed 0")
        progress.ended("rnn seed 0: done")
        progress.update(120, "transformer seed 0")
    lines = [line.rstrip() for line in Text.from_ansi(stream.getvalue().decode()).plain.splitlines()]
    assert any(line.endswith("1/4  rnn seed 0: done") for line in lines)
    assert lines[-1].startswith("1/4 runs ━━━━━━━━")
    assert "transformer seed 0" in lines[-1]
    assert lines[-1].endswith(("--:--", ":00", ":01"))


@pytest.mark.parametrize(("done", "full"), [(60, 4), (120, 8)])  # of 240, and of 16 places
def test_the_bar_is_as_full_as_steps_are_done(done: int, full: int) -> None:
    out, stream = console(live=True)
    with ComparisonProgress(out, 4, 240) as progress:
        progress.update(done, "")
    bar = stream.getvalue().decode().rpartition("0/4 runs")[2]
    assert bar.partition("\x1b[0m")[0].count("━") == full  # up to where the colour changes


def test_tables_show_every_cell_as_it_is() -> None:
    out, stream = console()
    table = Sheet("A title", ["model", "score"], [["one [red]", "0.5"], ["two", "[/]"]], "what [b]it[/b] means")
    scoreboard.show_sheets(out, [table, Sheet("Other", ["model"], [["three"]])], ["NOT COUNTED: [x] y", "z" * 99])
    lines = [line.strip() for line in stream.getvalue().decode().splitlines()]
    assert lines[0] == "A title"
    assert lines[1].split() == ["model", "score"]
    assert lines[3].rsplit(maxsplit=1) == ["one [red]", "0.5"]
    assert lines[4].split() == ["two", "[/]"]
    assert "what [b]it[/b] means" in lines
    assert lines[lines.index("Other") + 3] == "three"
    assert lines[-2:] == ["NOT COUNTED: [x] y", "z" * 99]


def test_columns_that_do_not_fit_come_below_with_the_names_again() -> None:
    out, stream = console(width=40)
    values = [f"0.{number}3±.{number}9" for number in range(9)]
    scoreboard.show_sheets(out, [Sheet("t", ["model", *"abcdefghi"], [["transformer", *values]], "note")], [])
    lines = [line.split() for line in stream.getvalue().decode().splitlines() if line.strip(" ─")]
    # 11 for the name, and 9 for each column with its gap: three fit into 40
    head = [["model", *part] for part in ("abc", "def", "ghi")]
    body = [["transformer", *values[at : at + 3]] for at in (0, 3, 6)]
    assert lines == [["t"], *(line for pair in zip(head, body, strict=True) for line in pair), ["note"]]


def test_names_are_never_cut() -> None:
    out, stream = console(width=60)
    name = "rnn_bahdanau (train.steps=60)"
    scoreboard.show_sheets(out, [Sheet("t", ["model", *"abcdef"], [[name, *["0.123±.456"] * 6]])], [])
    text = stream.getvalue().decode()
    assert name in text
    assert text.count("0.123±.456") == 6


@pytest.mark.parametrize("name", ["plain", "my [b] runs"])
def test_a_comparison_says_where_it_is(tmp_path: Path, name: str) -> None:
    out, stream = console()
    folder = tmp_path / name
    scoreboard.announce(out, folder, ["rnn: 7,092 parameters", "[x]" + "y" * 90])
    scoreboard.report(out, folder)
    lines = stream.getvalue().decode().splitlines()
    shown = terminal.shown_path(folder)
    assert lines[:4] == [
        "rnn: 7,092 parameters",
        "[x]" + "y" * 90,
        f"comparison   {shown}",
        "Ctrl-C saves and stops",
    ]
    assert lines[-2] == f"tables and figures   {shown}"
    assert lines[-1].endswith(f"/tensorboard --logdir {shown} --samples_per_plugin images=500")
