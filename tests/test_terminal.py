"""What a person reads in the terminal."""

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from lookback import terminal
from lookback.by_length import LengthScore
from lookback.evaluate import Example, Validation
from lookback.train import StepRecord

RIGHT = Example(list("abc"), list("cba"), list("cba"), True)


def console(encoding: str = "utf-8", *, live: bool = False) -> tuple[Console, io.BytesIO]:
    stream = io.BytesIO()
    file = io.TextIOWrapper(stream, encoding=encoding, write_through=True)
    return Console(file=file, width=80, force_terminal=live, highlight=False), stream


def score(length: int, **changes: float | bool | list[Example] | None) -> LengthScore:
    values = {
        "held_out": True,
        "exact_match": 0.5,
        "token_accuracy": 0.75,
        "teacher_forced": 0.875,
        "cut_off": 0.0,
        "tokens_per_second": 9.0,
    }
    return LengthScore(length=length, strings=200, tokens=900, example=RIGHT, **{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrote", "ended", "marks", "verdict"),
    [
        ("cba", True, None, "right"),
        ("cxa", True, "         ^", "1 wrong"),
        ("cb", True, None, "ended 1 too early"),
        ("cbaba", True, "           ^^", "2 wrong, ended 2 too late"),
        ("cbb", False, "          ^", "1 wrong, did not end by itself"),
        ("", True, None, "ended 3 too early"),
    ],
)
def test_wrong_symbols_are_marked_at_their_place(wrote: str, ended: bool, marks: str | None, verdict: str) -> None:
    out, stream = console()
    for line in terminal.example_lines(Example(list("abc"), list("cba"), list(wrote), ended)):
        out.print(line)
    lines = stream.getvalue().decode().splitlines()
    assert lines[:3] == ["source  abc", "wanted  cba", f"wrote   {wrote}   ({verdict})"]
    assert lines[3:] == ([marks] if marks else [])


def test_a_symbol_that_is_markup_stays_text() -> None:
    out, stream = console()
    for line in terminal.example_lines(Example(["[red]"], ["[/]"], ["[bold]"], True)):
        out.print(line)
    assert "[red]" in stream.getvalue().decode()
    assert "[/]" in stream.getvalue().decode()


def test_the_table_marks_what_is_beyond_training_and_what_was_seen() -> None:
    out, stream = console()
    scores = [score(2, held_out=False), score(20, exact_match=1.0), score(21)]
    out.print(terminal.score_table(scores, range(1, 21)))
    rows = [line.split() for line in stream.getvalue().decode().splitlines() if "200" in line]
    assert [row[:3] for row in rows] == [
        ["2", "trained", "200*"],
        ["20", "trained", "200"],
        ["21", "beyond", "200"],
    ]
    assert rows[1][3:] == ["1.000", "0.750", "0.875", "+0.125"]
    assert any(note.startswith("* ") for note in terminal.score_notes(scores))
    assert len(terminal.score_notes(scores[1:])) == 1


UNMEASURED = {"token_accuracy": None, "teacher_forced": None, "cut_off": None}


def test_what_was_not_measured_has_no_column() -> None:
    out, stream = console()
    scores = [score(20, **UNMEASURED), score(21, **UNMEASURED)]
    out.print(terminal.score_table(scores, range(1, 21)))
    lines = stream.getvalue().decode().splitlines()
    assert [line.split() for line in lines if "200" in line] == [
        ["20", "trained", "200", "0.500"],
        ["21", "beyond", "200", "0.500"],
    ]
    assert "token" not in "".join(lines)
    assert terminal.score_notes(scores) == [
        "beyond = longer than any training string; outputs were left at their first wrong token"
    ]


def test_of_many_lengths_twelve_are_in_the_table_and_the_notes_say_so(tmp_path: Path) -> None:
    out, stream = console()
    scores = [score(length) for length in range(41, 501)]
    terminal.report(out, scores, range(1, 41), tmp_path)
    lines = stream.getvalue().decode().splitlines()
    shown = [int(line.split()[0]) for line in lines if " 200 " in line]
    assert (len(shown), shown[0], shown[-1]) == (12, 41, 500)
    assert "12 of 460 lengths; all are in summary.json" in lines
    assert not any("lengths;" in note for note in terminal.score_notes(scores[:12]))


def test_progress_is_plain_lines_where_there_is_no_terminal() -> None:
    out, stream = console()
    with terminal.TrainingProgress(out, 100, 0) as progress:
        for step in range(2, 101, 2):
            progress.update(StepRecord(step, 1.25, 0.5, 0.001, 12345.6))
        progress.validated(100, Validation(0.5, 0.75, 0.25), True)
    lines = stream.getvalue().decode().splitlines()
    assert len(lines) == 21
    assert lines[-2] == "step 100/100  loss 1.2500  token accuracy 0.500  12,346 tokens/s"
    assert lines[-1] == "step 100: validation loss 0.5000, exact match 0.250 (best so far)"
    assert "\x1b" not in stream.getvalue().decode()


def test_progress_on_a_terminal_shows_loss_accuracy_speed_and_time_left() -> None:
    out, stream = console(live=True)
    with terminal.TrainingProgress(out, 100, 40) as progress:
        progress.update(StepRecord(50, 1.25, 0.5, 0.001, 123456.7))
    last = Text.from_ansi(stream.getvalue().decode()).plain.splitlines()[-1]
    assert re.search(r"50/100 .*loss 1\.2500  token accuracy 0\.500  123,457 tokens/s (--:--|\d\d:\d\d)", last)


def test_paths_are_shown_as_one_would_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "HERE", tmp_path)
    assert terminal.shown_path(tmp_path / "runs" / "a") == "runs/a"
    assert terminal.shown_path(tmp_path / "my runs") == "'my runs'"
    assert terminal.shown_path(Path("/elsewhere")) == "/elsewhere"


def test_the_report_shows_scores_examples_and_where_the_wrong_outputs_are(tmp_path: Path) -> None:
    out, stream = console()
    wrong = Example(list("abc"), list("cba"), list("cb"), True)
    terminal.report(out, [score(5), score(30, failures=[wrong])], range(1, 21), tmp_path)
    lines = stream.getvalue().decode().splitlines()
    assert "length 30, beyond training" in lines
    assert lines[-1] == f"wrong outputs, by kind   {tmp_path}/failures/failures.md"
    terminal.report(out, [score(5)], range(1, 21), tmp_path)
    assert stream.getvalue().decode().count("wrong outputs") == 1


def test_a_run_ends_with_its_folder_and_the_commands_to_look_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stream = console()
    for name in ("train.py", "attention.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train.py")])
    terminal.report_folder(out, tmp_path)
    lines = stream.getvalue().decode().splitlines()
    assert lines[0] == f"run folder   {tmp_path}"
    assert lines[1].startswith("board  ")
    assert lines[1].endswith(f"/tensorboard --logdir {tmp_path} --samples_per_plugin images=500")
    assert lines[2].startswith("explorer  ")
    assert lines[2].endswith(f"/python {tmp_path}/attention.py {tmp_path}")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lookback-train"])
    assert terminal.sibling("attention").endswith("/lookback-attention")


def test_long_strings_are_cut_so_that_marks_stay_under_their_symbols() -> None:
    out, stream = console()
    long = list("ab" * 50)
    for line in terminal.example_lines(Example(long, long, ["x", *long[1:]], True)):
        out.print(line, soft_wrap=True)
    lines = stream.getvalue().decode().splitlines()
    assert len(lines) == 4
    assert lines[0] == "source  " + "ab" * 15 + "..."
    assert lines[3] == "        ^"


def test_brackets_in_a_path_stay(tmp_path: Path) -> None:
    out, stream = console()
    folder = tmp_path / "attention [v2]" / "a[/b]"
    terminal.report_folder(out, folder)
    assert f"run folder   '{folder}'" in stream.getvalue().decode()


def test_lengths_on_each_side_of_the_trained_range_are_told_apart() -> None:
    assert [terminal.place(length, range(3, 6)) for length in (2, 3, 5, 6)] == [
        "below",
        "trained",
        "trained",
        "beyond",
    ]
