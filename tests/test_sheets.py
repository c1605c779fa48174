"""The tables and the notes of a comparison: numbers by pencil and paper."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import write_run
from lookback import results, sheets
from lookback.groups import Group, grouped
from lookback.intervals import Estimate
from lookback.results import Result
from lookback.sheets import Sheet

MACHINE = {"processor": "abacus", "threads": 1, "device": "cpu", "torch": "2.9", "python": "3.12"}
ALIKE = ["model.num_layers=2", "train.learning_rate=0.003"]  # otherwise an RNN has settings of its own
# Two seeds a model, Student's t at 0.975 with 1 degree of freedom: half a width is 12.7062 * |a - b| / 2.


@pytest.fixture
def groups(tmp_path: Path) -> list[Group]:
    """Two models; the seeds of the first got to 99 % at 40 and 60 steps, one of the second at 20."""
    runs = [
        results.read(
            write_run(
                tmp_path / f"{name}{seed}",
                f"model={name}",
                *ALIKE,
                seed=seed,
                exact_match=scores,
                validations=validations,
                **changes,
            ),
            name,
        )
        for name, seed, scores, validations, changes in [
            ("rnn", 3, {4: 0.5, 8: 0.25}, [(20, 0.5, 7.0), (40, 1.0, 12.0)], {"tokens": 2100}),
            ("rnn", 5, {4: 0.5, 8: 0.26}, [(20, 0.5, 8.0), (60, 1.0, 15.0)], {"tokens": 1900}),
            ("transformer", 3, {4: 1.0, 8: 0.5, 10: 0.25}, [(20, 1.0, 9.0)], {"parameters": 7231}),
            ("transformer", 5, {4: 0.98, 8: 0.52, 10: 0.25}, [(20, 0.5, 9.5)], {"parameters": 7231}),
        ]
    ]
    found, aside = grouped(runs)
    assert aside == []
    return found


def by_name(sheet: Sheet) -> dict[str, dict[str, str]]:
    assert all(len(row) == len(sheet.headings) for row in sheet.rows)
    return {row[0]: dict(zip(sheet.headings[1:], row[1:], strict=True)) for row in sheet.rows}


@pytest.mark.parametrize(
    ("found", "digits", "text"),
    [
        (None, 3, "-"),
        (Estimate(0.5, None, 1), 3, "0.500"),
        (Estimate(0.9876, 0.0149, 3), 2, "0.99±.01"),
        (Estimate(-0.25, 1.5, 2), 3, "-0.250±1.500"),
        (Estimate(12345.6, 20.4, 2), 0, "12,346±20"),
        (Estimate(12345.6, 0.4, 2), 0, "12,346±0"),
        (Estimate(500.0, 0.0, 3), 0, "500"),
        (Estimate(0.5, 0.0, 3), 3, "0.500±.000"),
        (Estimate(0.5, 10.25, 3), 2, "0.50±10.25"),
    ],
)
def test_a_mean_is_shown_with_its_interval(found: Estimate | None, digits: int, text: str) -> None:
    assert sheets.shown(found, digits) == text


def test_the_terms_are_told_with_the_tokens_of_the_run_that_saw_the_fewest(groups: list[Group]) -> None:
    rows = by_name(sheets.models(groups))
    assert list(rows) == ["rnn", "transformer"]
    assert rows["rnn"] == {
        "seeds": "2",
        "parameters": "7,160",
        "d_model": "119",
        "learning rate": "0.003",
        "steps": "60",
        "tokens seen": "1,900",
    }
    assert rows["transformer"]["parameters"] == "7,231"
    assert rows["transformer"]["d_model"] == "64"


def test_what_was_learned_is_compared_with_the_baseline_seed_by_seed(groups: list[Group]) -> None:
    sheet = sheets.learned(groups, groups[1])
    rows = by_name(sheet)
    assert sheet.title == "Exact match at length 8, decoded freely"
    assert rows["rnn"] == {
        "exact match": "0.255±.064",  # 0.25 and 0.26: 12.7062 * 0.005
        "difference": "-0.255±.064",  # -0.25 and -0.26
        "all lengths": "0.625±.000",
        "steps to 99 %": "50±127",  # 40 and 60: 12.7062 * 10
        "seconds to 99 %": "14±19",  # 12 and 15, to even: 12.7062 * 1.5
    }
    assert rows["transformer"] == {
        "exact match": "0.510±.127",  # 0.5 and 0.52: 12.7062 * 0.01
        "difference": "baseline",
        "all lengths": "0.625±.000",
        "steps to 99 %": "1 of 2 seeds",
        "seconds to 99 %": "1 of 2 seeds",
    }
    assert "looked at every 20 steps" in sheet.note


def test_where_no_trained_length_was_tested_the_table_says_so(tmp_path: Path) -> None:
    sheet = sheets.learned([Group("x", [run(tmp_path / "run", exact_match={9: 0.5})])], None)
    assert sheet.title == "Exact match at the longest trained length (not tested), decoded freely"
    assert by_name(sheet)["x"]["exact match"] == "-"


def test_without_a_baseline_there_are_no_differences(groups: list[Group]) -> None:
    for table in (sheets.learned(groups, None), sheets.sheets(groups, "nobody")[1]):
        assert [row["difference"] for row in by_name(table).values()] == ["-", "-"]


def test_the_baseline_is_the_group_of_that_name(groups: list[Group]) -> None:
    rows = by_name(sheets.sheets(groups, "rnn")[1])
    assert rows["rnn"]["difference"] == "baseline"
    assert rows["transformer"]["difference"] == "0.255±.064"


def test_only_shared_seeds_are_subtracted(groups: list[Group]) -> None:
    one = Group("rnn", groups[0].results[1:])
    assert by_name(sheets.learned([one, groups[1]], groups[1]))["rnn"]["difference"] == "-0.260"  # seed 5 alone


def test_what_nobody_reached_is_said(tmp_path: Path) -> None:
    run = results.read(write_run(tmp_path / "run", validations=[(20, 0.5, 1.0)]))
    group = Group("x", [run])
    assert sheets.reached(group, "steps_to_99", 0) == "not reached"


def test_scores_stand_by_length_and_lengths_beyond_training_are_marked(groups: list[Group]) -> None:
    exact, tokens = sheets.by_length(groups)
    assert exact.headings == tokens.headings == ["model", "4", "8", "10*"]
    assert exact.rows == [
        ["rnn", "0.50±.00", "0.26±.06", "-"],
        ["transformer", "0.99±.13", "0.51±.13", "0.25±.00"],
    ]
    assert tokens.rows[0] == ["rnn", "0.75±.00", "0.63±.03", "-"]  # 0.625 and 0.63: 12.7062 * 0.0025
    assert exact.title.startswith("Exact match")
    assert tokens.title.startswith("Token accuracy")
    assert "8 symbols" in exact.note


def test_the_star_is_explained_only_where_there_is_one(groups: list[Group]) -> None:
    within = [
        replace(group, results=[replace(one, raw=longer(one.raw)) for one in group.results]) for group in groups
    ]
    exact, _ = sheets.by_length(within)
    assert exact.headings == ["model", "4", "8", "10"]
    assert exact.note == ""


def longer(raw: dict[str, Any]) -> dict[str, Any]:
    """The same, trained on strings of up to 10 symbols."""
    return {**raw, "data": {**raw["data"], "max_length": 10}}


UNMEASURED: dict[str, dict[str, float]] = {"token_accuracy": {}, "cut_off": {}}


def test_beyond_training_is_a_table_of_means_over_seeds(tmp_path: Path) -> None:
    values = [
        ("rnn", 3, {"lengths": 9, "exact_match": 0.25, "token_accuracy": 0.5}),
        ("rnn", 5, {"lengths": 9, "exact_match": 0.26, "token_accuracy": 0.5}),
        ("transformer", 3, {"lengths": 7, "exact_match": 1.0}),
        ("old", 3, None),
    ]
    groups, _ = grouped(
        [
            results.read(write_run(tmp_path / f"{at}", seed=seed, beyond=found), name)
            for at, (name, seed, found) in enumerate(values)
        ]
    )
    [sheet] = sheets.beyond(groups)
    assert sheet.headings == ["model", "lengths", "exact match", "token accuracy"]
    assert sheet.rows == [
        ["rnn", "9", "0.255±.064", "0.500±.000"],
        ["transformer", "7", "1.000", "-"],
        ["old", "-", "-", "-"],
    ]
    assert "above 8, each counting alike" in sheet.note
    assert sheets.beyond(groups[1:2])[0].headings == ["model", "lengths", "exact match"]
    assert sheets.beyond(groups[2:]) == []
    assert [table.title.split()[0] for table in sheets.sheets(groups, "rnn")] == [
        "Models",
        "Exact",
        "Beyond",
        "Exact",
        "Token",
        "Cost",
    ]


def test_of_many_lengths_twelve_have_a_column_and_the_note_says_so(tmp_path: Path) -> None:
    scores = {length: length / 100 for length in range(1, 31)}
    exact, tokens = sheets.by_length([Group("x", [run(tmp_path / "run", exact_match=scores)])])
    assert len(exact.headings) == len(tokens.headings) == 1 + 12
    assert (exact.headings[1], exact.headings[-1]) == ("1", "30*")
    assert (exact.rows[0][1], exact.rows[0][-1]) == ("0.01", "0.30")
    assert exact.note.endswith("\n12 of 30 lengths; all are in results.csv")


def test_what_was_not_measured_has_no_table(tmp_path: Path) -> None:
    [exact] = sheets.by_length([Group("x", [run(tmp_path / "run", **UNMEASURED)])])
    assert exact.title.startswith("Exact match")
    assert "lengths;" not in exact.note


@pytest.fixture
def tasks(tmp_path: Path) -> list[Group]:
    """Three tasks: two of one kind with other alphabets, and another kind; two models of the first."""
    made = [
        ("copy", ["task=copy"]),
        ("deep", ["task=copy", "model.num_layers=3"]),
        ("few", ["task=copy", "task.alphabet_size=2"]),
        ("back", ["task=reverse"]),
    ]
    return [
        Group(name, [run(tmp_path / name, *overrides, exact_match={8: score}, data_digest=digest)])
        for (name, overrides), score, digest in zip(
            made, (0.25, 0.75, 0.5, 1.0), ("one", "one", "two", "three"), strict=True
        )
    ]


def test_where_tasks_differ_the_table_of_models_says_each(tasks: list[Group], groups: list[Group]) -> None:
    rows = by_name(sheets.models(tasks))
    assert {name: row["task"] for name, row in rows.items()} == {
        "copy": "copy alphabet_size=26",
        "deep": "copy alphabet_size=26",
        "few": "copy alphabet_size=2",
        "back": "reverse alphabet_size=26",
    }
    assert [row["task"] for row in by_name(sheets.models([tasks[0], tasks[3]])).values()] == ["copy", "reverse"]
    assert "task" not in sheets.models(groups).headings


def test_a_difference_is_told_only_where_the_task_is_the_baseline_s(tasks: list[Group]) -> None:
    rows = by_name(sheets.learned(tasks, tasks[0]))
    assert [row["difference"] for row in rows.values()] == ["baseline", "0.500", "other task", "other task"]


def test_other_tasks_and_their_strings_need_no_note(tasks: list[Group]) -> None:
    assert sheets.notes(tasks, [], {}) == ["DIFFERS: model.num_layers (copy: 2, deep: 3, few: 2, back: 2)"]
    other = Group(
        "deep", [replace(run_, summary={**run_.summary, "data_digest": "0ther"}) for run_ in tasks[1].results]
    )
    assert sheets.notes([tasks[0], other, tasks[3]], [], {})[1:] == [
        "DIFFERS: runs of seed 0 did not see the same strings"
    ]


def test_costs_are_means_of_what_the_runs_say(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"tokens_per_second": 900.0, "train_seconds": 4.0, "sequential_steps": 19, "peak_memory_mib": 400.0},
        {"tokens_per_second": 1300.0, "train_seconds": 6.0, "sequential_steps": 19, "peak_memory_mib": 402.0},
    ]
    runs = [
        results.read(write_run(tmp_path / f"{seed}", seed=seed, **change)) for seed, change in enumerate(changes)
    ]
    assert by_name(sheets.costs([Group("x", runs)]))["x"] == {
        "training tokens/s": "1,100±2,541",  # 12.7062 * 200
        "decoding tokens/s": "108",
        "training seconds": "5±13",
        "sequential steps": "19",
        "peak memory MiB": "401±13",
    }


def test_all_tables_are_there_in_order(groups: list[Group]) -> None:
    titles = [sheet.title.split()[0] for sheet in sheets.sheets(groups, "rnn")]
    assert titles == ["Models", "Exact", "Exact", "Token", "Cost"]


def test_markdown_is_well_formed_whatever_the_cells_hold() -> None:
    table = Sheet("A title", ["model", "x", "y"], [["a|b", "1", "2"], ["c", "3", "4"]], "* a note\nof two")
    assert table.markdown() == (
        "**A title**\n\n| model | x | y |\n| --- | --: | --: |\n| a\\|b | 1 | 2 |\n| c | 3 | 4 |\n\n"
        "\\* a note  \nof two\n"
    )


def test_a_table_without_a_note_ends_with_its_last_row(groups: list[Group]) -> None:
    assert Sheet("t", ["model"], [["a"]]).markdown().endswith("| --- |\n| a |\n")
    for sheet in sheets.sheets(groups, "rnn"):
        lines = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(sheet.rows)
        assert {line.count("|") for line in lines} == {len(sheet.headings) + 1}


def test_a_group_as_plain_numbers_has_every_column_that_is_a_number_in_each_run(groups: list[Group]) -> None:
    found = sheets.plain(groups[0])
    assert (found["name"], found["seeds"]) == ("rnn", [3, 5])
    columns = found["columns"]
    assert isinstance(columns, dict)
    assert columns["exact_match/8"] == {"mean": 0.255, "half_width": pytest.approx(0.063531), "count": 2}
    assert columns["tokens"]["mean"] == 2000
    assert columns["steps_to_99"]["mean"] == 50
    assert not {"name", "status", "reused", "folder", "exact_match/10"} & set(columns)
    other = sheets.plain(groups[1])["columns"]
    assert isinstance(other, dict)
    assert "steps_to_99" not in other


def test_like_runs_of_all_seeds_need_no_note(groups: list[Group]) -> None:
    assert sheets.notes(groups, [], {"rnn": [3, 5], "transformer": [5, 3]}) == []


def test_runs_that_do_not_count_are_named_with_reason_and_folder(groups: list[Group]) -> None:
    bad = replace(groups[0].results[0], problem="failed: loss is not finite at step 2")
    folder = bad.folder
    assert sheets.notes(groups, [bad], {}) == [
        f"NOT COUNTED: rnn seed 3: failed: loss is not finite at step 2 ({folder})"
    ]


def test_missing_seeds_are_named(groups: list[Group]) -> None:
    wanted = {"gone": [1], "rnn": [3, 5, 9, 8], "transformer": [3, 5]}
    assert sheets.notes(groups, [], wanted) == [
        "MISSING: gone has no finished run of seed 1",
        "MISSING: rnn has no finished run of seed 8, 9",
    ]


def test_among_runs_that_exist_a_seed_is_missing_where_another_model_has_it(groups: list[Group]) -> None:
    short = [groups[0], Group("transformer", groups[1].results[:1])]
    assert sheets.notes(short, [], {}) == ["MISSING: transformer has no finished run of seed 5"]


def test_runs_that_were_there_are_counted(groups: list[Group]) -> None:
    runs = groups[0].results
    again = [Group("rnn", [replace(runs[0], reused=True), runs[1]]), groups[1]]
    assert sheets.notes(again, [], {}) == [
        "1 of 4 runs were there already, with the same configuration and code: reused."
    ]


def run(folder: Path, *overrides: str, **changes: Any) -> Result:
    return results.read(write_run(folder, *overrides, **changes))


def test_settings_that_differ_between_models_are_told_but_for_each_model_s_own_and_its_width(
    tmp_path: Path,
) -> None:
    own = ["model=rnn", "model.num_layers=2", "train.steps=70", "train.learning_rate=0.002", "board.images_every=3"]
    one = run(tmp_path / "a", *own)
    two = run(tmp_path / "b", "model=transformer", "train.save_every=9", "model.dropout=0.25")
    assert sheets.notes([Group("one", [one]), Group("two", [two])], [], {}) == [
        "DIFFERS: model.dropout (one: 0.0, two: 0.25)",
        "DIFFERS: train.steps (one: 70, two: 60)",
        "DIFFERS: train.learning_rate (one: 0.002, two: 0.003)",
    ]


def test_a_setting_that_only_some_models_have_is_told_of_those(tmp_path: Path) -> None:
    one = run(tmp_path / "a", "model=rnn", "model.cell=lstm", *ALIKE)
    two = run(tmp_path / "b", "model=rnn_luong", "model.cell=gru", "model.d_model=19", *ALIKE)
    three = run(tmp_path / "c", "model=transformer")
    found = sheets.notes([Group("one", [one]), Group("two", [two]), Group("three", [three])], [], {})
    assert found == ["DIFFERS: model.cell (one: lstm, two: gru)"]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"code_version": "0ther"}, "DIFFERS: code version (0c0de0: 2 runs, 0ther: 1 runs)"),
        ({"code_version": ""}, "DIFFERS: code version (0c0de0: 2 runs, unknown: 1 runs)"),
        ({"machine": {**MACHINE, "threads": 2}}, "DIFFERS: threads (1: 2 runs, 2: 1 runs)"),
        (
            {"machine": {**MACHINE, "processor": "slide rule"}},
            "DIFFERS: processor (abacus: 2 runs, slide rule: 1 runs)",
        ),
        ({"machine": {**MACHINE, "device": "cuda"}}, "DIFFERS: device (cpu: 2 runs, cuda: 1 runs)"),
        ({"machine": {**MACHINE, "torch": "2.8"}}, "DIFFERS: torch (2.9: 2 runs, 2.8: 1 runs)"),
        ({"machine": {**MACHINE, "python": "3.11"}}, "DIFFERS: python (3.12: 2 runs, 3.11: 1 runs)"),
        ({"split": "validation"}, "DIFFERS: split (test: 2 runs, validation: 1 runs)"),
        ({"data_digest": "0ther"}, "DIFFERS: runs of seed 6 did not see the same strings"),
    ],
)
def test_code_machine_and_strings_that_differ_are_told(
    tmp_path: Path, change: dict[str, object], note: str
) -> None:
    one = [run(tmp_path / "a", seed=4), run(tmp_path / "b", seed=6)]
    two = [run(tmp_path / "c", seed=6, **change)]
    assert sheets.notes([Group("one", one), Group("two", two)], [], {"one": [4, 6], "two": [6]}) == [note]


def test_seeds_see_strings_of_their_own_without_a_note(tmp_path: Path) -> None:
    runs = [run(tmp_path / "a", seed=4), run(tmp_path / "b", seed=6)]
    assert runs[0].row()["data_digest"] != runs[1].row()["data_digest"]
    assert sheets.notes([Group("x", runs)], [], {}) == []


def test_without_any_run_that_counts_the_notes_still_say_why(tmp_path: Path) -> None:
    bad = run(tmp_path / "a", status="interrupted")
    assert [note.split(":")[0] for note in sheets.notes([], [bad], {"transformer": [0]})] == [
        "NOT COUNTED",
        "MISSING",
    ]
