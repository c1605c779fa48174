"""What a comparison leaves in its folder."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import write_run
from lookback import report, results
from lookback.console import SteadyConsole
from lookback.groups import grouped

SCORES = {"rnn": (1 / 3, 2 / 7), "transformer": (0.1 + 0.2, 1 / 7)}  # none is short in decimals


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a comparison of two models with two seeds, and an unfinished run; and what was shown."""
    tmp_path = tmp_path_factory.mktemp("report")
    runs = [
        write_run(
            tmp_path / "out" / name / f"seed{seed}",
            f"model={name}",
            seed=seed,
            exact_match={4: 1.0, 8: score},
            validations=[(20, score, 1 / 3)],
        )
        for name, scores in SCORES.items()
        for seed, score in enumerate(scores)
    ]
    bad = write_run(tmp_path / "elsewhere", "model=rnn", seed=2, status="interrupted")
    alike, aside = grouped([results.read(folder) for folder in [*runs, bad]])
    stream = io.StringIO()
    notes = ["NOT COUNTED: rnn seed 2", "MISSING: rnn has no finished run of seed 2"]
    console = SteadyConsole(file=stream, width=100, highlight=False)
    report.write(tmp_path / "out", alike, aside, "transformer", notes, ["task=reverse", "seeds=[0,1]"], console)
    return tmp_path / "out", stream.getvalue()


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_csv_has_one_row_a_run_in_full_precision(written: tuple[Path, str]) -> None:
    found = rows(written[0])
    assert [(row["name"], row["seed"], row["status"]) for row in found] == [
        ("rnn", "0", "finished"),
        ("rnn", "1", "finished"),
        ("transformer", "0", "finished"),
        ("transformer", "1", "finished"),
        ("rnn", "2", "interrupted"),
    ]
    assert [float(row["exact_match"]) for row in found[:4]] == [*SCORES["rnn"], *SCORES["transformer"]]
    assert [float(row["exact_match/8"]) for row in found[:4]] == [*SCORES["rnn"], *SCORES["transformer"]]
    assert found[4]["exact_match/8"] == "0.5"
    assert found[4]["problem"] == "unfinished: interrupted"
    assert [row["folder"] for row in found] == [
        "rnn/seed0",
        "rnn/seed1",
        "transformer/seed0",
        "transformer/seed1",
        "../elsewhere",
    ]


def test_the_header_has_every_column_of_every_run(written: tuple[Path, str]) -> None:
    header = (written[0] / "results.csv").read_text().splitlines()[0].split(",")
    assert header[:4] == ["name", "model", "task", "seed"]
    assert len(header) == len(set(header))
    assert {"exact_match/4", "exact_match/8", "exact_match/10"} <= set(header)  # the last: of the unfinished run
    assert rows(written[0])[0]["exact_match/10"] == ""


def test_texts_with_commas_quotes_and_lines_survive_in_the_csv(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"a": 'x, "y"\nz', "b": 1}, {"b": 2, "c": "李"}]
    report.write_rows(tmp_path / "results.csv", lines)
    assert rows(tmp_path) == [{"a": 'x, "y"\nz', "b": "1", "c": ""}, {"a": "", "b": "2", "c": "李"}]


def test_the_json_has_what_was_typed_groups_notes_and_runs(written: tuple[Path, str]) -> None:
    found = json.loads((written[0] / "results.json").read_text())
    assert found["typed"] == ["task=reverse", "seeds=[0,1]"]
    assert found["baseline"] == "transformer"
    assert [group["name"] for group in found["groups"]] == ["rnn", "transformer"]
    assert found["groups"][0]["columns"]["exact_match"]["mean"] == pytest.approx((1 / 3 + 2 / 7) / 2)
    assert [run["exact_match"] for run in found["runs"][:4]] == [*SCORES["rnn"], *SCORES["transformer"]]
    assert found["notes"] == ["NOT COUNTED: rnn seed 2", "MISSING: rnn has no finished run of seed 2"]


def test_the_markdown_has_every_table_and_note(written: tuple[Path, str]) -> None:
    text = (written[0] / "table.md").read_text()
    assert text.count("**") == 2 * 5
    assert "| rnn | 0.310±.303 | 0.088±.696 |" in text  # 1/3 and 2/7: 12.7062 / 42; 1/30 and 1/7: 12.7062 * 23/420
    assert "\n- MISSING: rnn has no finished run of seed 2\n" in text
    notes = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(notes) == 2
    assert text.split(notes[0])[0].endswith("\n\n")  # a list begins after an empty line


def test_the_terminal_shows_the_same_tables_and_notes_and_where_the_files_are(written: tuple[Path, str]) -> None:
    folder, text = written
    for part in ("0.310±.303", "baseline", "NOT COUNTED: rnn seed 2", str(folder)):
        assert part in text


def test_figures_are_files_and_on_the_board(written: tuple[Path, str]) -> None:
    names = ["exact_match_by_length", "learning_curves", "speed"]
    assert sorted(path.stem for path in written[0].glob("*.png")) == names
    for name in names:
        picture = imread(written[0] / f"{name}.png")
        assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20
    board = EventAccumulator(str(written[0]), size_guidance={"images": 0})
    board.Reload()
    assert sorted(board.Tags()["images"]) == [f"compare/{name}" for name in names]
    height, width = imread(written[0] / "speed.png").shape[:2]
    [shown] = board.Images("compare/speed")
    assert (shown.height, shown.width) == (height, width)


def test_without_a_run_that_counts_the_notes_are_left(tmp_path: Path) -> None:
    alike, aside = grouped([results.read(write_run(tmp_path / "bad", status="failed", reason="disk"))])
    stream = io.StringIO()
    (tmp_path / "out").mkdir()
    console = SteadyConsole(file=stream, width=300, highlight=False)
    report.write(tmp_path / "out", alike, aside, "x", ["NOT COUNTED: why"], [], console)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.csv", "results.json", "table.md"]
    assert (tmp_path / "out" / "table.md").read_text() == "- NOT COUNTED: why\n"
    assert "NOT COUNTED: why" in stream.getvalue()
    assert len(rows(tmp_path / "out")) == 1
