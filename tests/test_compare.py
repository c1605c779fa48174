"""A comparison from start to end: what it trains, what it takes as it is, stopping, going on, failing."""

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import pairs_files
from lookback import (
    charts,
    checkpoint,
    command_line,
    compare,
    comparison,
    config,
    experiment,
    files,
    results,
    watch,
)
from lookback.compare import Planned
from lookback.comparison import Plan
from lookback.launcher import Typed
from lookback.observer import Observer
from lookback.schema import ConfigError
from lookback.train import Trainer

SCRIPT = Path(__file__).parents[1] / "scripts" / "compare.py"
T_1 = 12.7062  # Student's t at 0.975 with 1 degree of freedom
RNN = {"rnn": ["model=rnn"]}
TINY = {
    "tiny": ["model=transformer", "model.d_model=12", "model.num_heads=3", "model.num_layers=1", "model.d_ff=20"]
}
SMALL = [
    "experiment=smoke",
    "train.steps=6",
    "train.learning_rate=0.003",
    "train.validate_every=3",
    "train.save_every=5",
    "model.dropout=0.5",
    "evaluate.strings=5",
    "evaluate.extra_tokens=2",
    "evaluate.lengths=[4,8,10]",
    "board.alignment_every=0",
    "board.images_every=0",
    "board.snapshots_every=0",
]


def models(*entries: dict[str, list[str]]) -> str:
    """What one types to compare these."""
    return "models=" + json.dumps(entries).replace('{"', "{").replace('": [', ":[")


TYPED = [*SMALL, models(RNN, TINY), "seeds=[0,1]"]


def launch(*overrides: str) -> int:
    """Run the command line in this process, one job after another."""
    return command_line.launch(
        compare.run, "compare", [*TYPED, "hydra/launcher=basic", *overrides], build=comparison.plan
    )


@cache
def plan(*overrides: str) -> Plan:
    """What `launch` plans."""
    typed = Typed("compare", (*TYPED, "hydra/launcher=basic", *overrides))
    return comparison.plan(typed.compose(), typed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A working folder in which two models were compared with two seeds, and what was shown."""
    here = tmp_path_factory.mktemp("compare")
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.chdir(here)
        patch.setattr(Observer, "leave", nothing)
        patch.setattr(charts, "CHARTS", charts.CHARTS[:1])
        assert launch() == 0
    return here, output.getvalue()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; nothing is drawn, and jobs are looked at only when all are done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Observer, "leave", nothing)
    monkeypatch.setattr(charts, "CHARTS", ())
    monkeypatch.setattr(watch, "LOOK_EVERY", 60.0)
    return tmp_path


@pytest.fixture
def after(here: Path, finished: tuple[Path, str]) -> Path:
    """A copy of the working folder of `finished`."""
    shutil.copytree(finished[0] / "runs", here / "runs")
    return here


def only(here: Path) -> Path:
    """The folder of the one comparison there."""
    [folder] = (here / "runs" / "compare").iterdir()
    return folder


def newest(here: Path) -> Path:
    return max((here / "runs" / "compare").iterdir())


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(folder: Path, title: str) -> dict[str, dict[str, str]]:
    """A table of table.md: model -> heading -> cell."""
    part = (folder / "table.md").read_text().split(f"**{title}")[1].split("\n\n")[1]
    headings, _, *lines = ([cell.strip() for cell in line.strip("| ").split("|")] for line in part.splitlines())
    return {line[0]: dict(zip(headings[1:], line[1:], strict=True)) for line in lines}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.load(folder / "checkpoints" / "last.pt")["model"]
    return found


def same_bits(one: Path, two: Path) -> bool:
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def nothing(*_: object) -> None:
    """What takes time and is tested elsewhere."""


def never(*_: object, **__: object) -> int:
    raise AssertionError("a run was trained")


def test_the_folder_holds_the_runs_the_tables_and_the_figures(finished: tuple[Path, str]) -> None:
    folder = only(finished[0])
    names = {path.name for path in folder.iterdir() if "tfevents" not in path.name}
    tables = {"table.md", "results.csv", "results.json"}
    assert names == {"rnn", "tiny", *tables, "exact_match_by_length.png"}
    for run in ("rnn/seed0", "rnn/seed1", "tiny/seed0", "tiny/seed1"):
        assert results.read_summary(folder / run)["status"] == "finished"


def test_the_csv_has_a_row_a_run_with_the_numbers_of_its_summary(finished: tuple[Path, str]) -> None:
    folder = only(finished[0])
    found = rows(folder)
    assert [row["folder"] for row in found] == ["rnn/seed0", "rnn/seed1", "tiny/seed0", "tiny/seed1"]
    for row in found:
        summary = results.read_summary(folder / row["folder"])
        assert int(row["parameters"]) == sum(tensor.numel() for tensor in weights(folder / row["folder"]).values())
        assert float(row["validation_loss"]) == summary["validation"]["loss"]
        assert float(row["train_seconds"]) == summary["train_seconds"]
        assert float(row["exact_match"]) == summary["exact_match"]["8"]
        for length in ("4", "8", "10"):
            assert float(row[f"token_accuracy/{length}"]) == summary["token_accuracy"][length]
        assert row["config_digest"] == config.digest(config.read(folder / row["folder"] / "config.yaml"))
        assert (row["steps"], row["reused"], row["problem"]) == ("6", "False", "")


def test_the_terms_are_equal(finished: tuple[Path, str]) -> None:
    rnn0, rnn1, tiny0, tiny1 = rows(only(finished[0]))
    assert int(rnn0["parameters"]) == pytest.approx(int(tiny0["parameters"]), rel=0.03)
    assert rnn0["parameters"] == rnn1["parameters"]
    assert tiny0["d_model"] == tiny1["d_model"] == "12"
    for column in ("steps", "batch_size", "tokens", "data_digest", "learning_rate", "code_version", "threads"):
        assert (rnn0[column], rnn1[column]) == (tiny0[column], tiny1[column])
    assert rnn0["data_digest"] != rnn1["data_digest"]


def test_the_tables_are_what_the_csv_gives_by_hand(finished: tuple[Path, str]) -> None:
    folder = only(finished[0])
    found = rows(folder)

    def two(name: str, column: str) -> tuple[float, float]:
        first, second = (float(row[column]) for row in found if row["name"] == name)
        return first, second

    def shown(values: tuple[float, float], digits: int) -> str:
        mean, half = sum(values) / 2, T_1 * abs(values[0] - values[1]) / 2
        return f"{mean:,.{digits}f}±{half:,.{digits}f}".replace("±0.", "±.")

    for name in ("rnn", "tiny"):
        by_length = table(folder, "Token accuracy by length")[name]
        assert list(by_length) == ["4", "8", "10*"]
        for length in ("4", "8", "10"):
            cell = by_length["10*" if length == "10" else length]
            assert cell == shown(two(name, f"token_accuracy/{length}"), 2)
        costs = table(folder, "Cost")[name]
        measured = [f"{T_1 * abs(a - b) / 2:,.0f}" for a, b in [two(name, "training_tokens_per_second")]]
        assert costs["training tokens/s"].split("±")[1] == measured[0]
        terms = table(folder, "Models")[name]
        assert terms["parameters"] == f"{two(name, 'parameters')[0]:,.0f}"
        assert (terms["seeds"], terms["steps"]) == ("2", "6")
    learned = table(folder, "Exact match at length 8")
    differences = [a - b for a, b in zip(two("rnn", "exact_match"), two("tiny", "exact_match"), strict=True)]
    assert learned["rnn"]["difference"] == shown((differences[0], differences[1]), 3)
    assert learned["tiny"]["difference"] == "baseline"
    assert learned["rnn"]["steps to 99 %"] == "not reached"


def test_what_is_shown_begins_with_the_sizes_and_tells_each_run_that_ends(finished: tuple[Path, str]) -> None:
    here, text = finished
    counts = {row["name"]: int(row["parameters"]) for row in rows(only(here))}
    lines = text.splitlines()
    share = 100 * counts["rnn"] / counts["tiny"] - 100
    width = rows(only(here))[0]["d_model"]
    assert lines[0] == f"rnn: {counts['rnn']:,} parameters (d_model {width}, {share:+.1f} % of tiny's)"
    assert lines[1] == f"tiny: {counts['tiny']:,} parameters (d_model 12)"
    endings = [line.split(":")[0] for line in lines if re.match(r"\d/4  ", line)]
    assert endings == ["1/4  rnn seed 0", "2/4  tiny seed 0", "3/4  rnn seed 1", "4/4  tiny seed 1"]
    assert not any(line.startswith(("step ", "NOT COUNTED", "MISSING", "DIFFERS")) for line in lines)


def test_the_same_command_again_trains_nothing_and_says_so(
    after: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = only(after)
    monkeypatch.setattr(experiment, "run", never)
    assert launch() == 0
    assert "4 of 4 runs were there already" in capsys.readouterr().out
    again = newest(after)
    assert again != first
    old, new = rows(first), rows(again)
    assert {row["reused"] for row in new} == {"True"}
    assert [{**row, "reused": "False"} for row in new] == old
    assert (again / "rnn" / "seed0").resolve() == first / "rnn" / "seed0"
    assert (again / "table.md").read_text().startswith((first / "table.md").read_text().rstrip())


class Pretend:
    """Stands where jobs are run; remembers which."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(
        self, plan: Plan, folder: Path, planned: Sequence[Planned], *_: object
    ) -> tuple[dict[str, str], int]:
        self.asked = [one.subfolder for one in planned]
        return {}, 0


@pytest.mark.parametrize("why", ["code", "settings", "asked not to"])
def test_runs_of_other_code_or_settings_are_not_reused_nor_any_against_the_user_s_will(
    after: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    monkeypatch.setattr(compare, "run_all", pretend := Pretend())
    this = plan()
    if why == "code":
        monkeypatch.setattr(compare, "code_version", lambda: "0ther")
    elif why == "settings":
        raws = [{**entry.raw, "train": {**entry.raw["train"], "steps": 7}} for entry in this.entries]
        entries = [replace(entry, raw=raw) for entry, raw in zip(this.entries, raws, strict=True)]
        this = replace(this, entries=entries)
    else:
        this = replace(this, settings=replace(this.settings, reuse=False))
    assert compare.run(this, after / "again", False) == 1
    assert pretend.asked == ["rnn/seed0", "tiny/seed0", "rnn/seed1", "tiny/seed1"]
    assert "reused" not in capsys.readouterr().out


def test_runs_of_a_file_that_has_changed_are_not_reused(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_pairs = ["task=pairs", *pairs_files(here), "train.epochs=1", "train.steps=null", models(RNN), "seeds=[0]"]
    assert launch(*of_pairs) == 0
    monkeypatch.setattr(compare, "run_all", pretend := Pretend())
    assert compare.run(plan(*of_pairs), here / "same", False) == 0
    assert pretend.asked == []
    assert "1 of 1 runs were there already" in capsys.readouterr().out
    with (here / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("tac\tc a t\n")
    assert compare.run(plan(*of_pairs), here / "changed", False) == 1
    assert pretend.asked == ["rnn/seed0"]


def test_only_what_is_missing_is_trained(after: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(only(after) / "tiny" / "seed0")
    monkeypatch.setattr(compare, "run_all", pretend := Pretend())
    assert compare.run(plan(), after / "again", False) == 0
    assert pretend.asked == ["tiny/seed0"]
    notes = json.loads((after / "again" / "results.json").read_text())["notes"]
    assert notes[0].startswith("NOT COUNTED: tiny seed 0: unfinished: not begun")
    assert notes[1:] == [
        "MISSING: tiny has no finished run of seed 0",
        "3 of 3 runs were there already, with the same configuration and code: reused.",
    ]


def test_ctrl_c_in_the_second_run_stops_all_and_the_same_command_goes_on_to_the_same_bits(
    here: Path, finished: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = only(finished[0])
    (here / "runs").mkdir()
    shutil.copytree(whole / "tiny" / "seed1", here / "runs" / "earlier")  # so that there is less to train
    advance = Trainer.advance
    trained: list[int] = []

    def advance_and_stop(self: Trainer, batch_at: Any) -> None:
        trained.append(self.step)
        if len(trained) == 6 + 4:  # the second run's fourth update; it saves after its fifth
            os.kill(os.getpid(), signal.SIGINT)
        advance(self, batch_at)

    monkeypatch.setattr(Trainer, "advance", advance_and_stop)
    assert launch() == 130
    assert trained == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    first = only(here)
    assert results.read_summary(first / "tiny" / "seed0")["status"] == "interrupted"
    assert not (first / "rnn" / "seed1" / "config.yaml").exists()
    assert not (first / command_line.STOP_FILE).exists()
    shown = capsys.readouterr().out
    assert "NOT COUNTED: tiny seed 0: unfinished: interrupted" in shown
    assert "MISSING: rnn has no finished run of seed 1" in shown
    assert "stopped; all is saved" in shown
    trained.clear()
    torch.manual_seed(12345)
    assert launch() == 0
    assert trained == [4, 5, 0, 1, 2, 3, 4, 5]
    second = newest(here)
    for name in ("rnn/seed0", "rnn/seed1", "tiny/seed0", "tiny/seed1"):
        assert same_bits(second / name, whole / name)
    for old, new in zip(rows(whole), rows(second), strict=True):
        for column in ("name", "seed", "status", "problem", "exact_match/4", "token_accuracy/8", "config_digest"):
            assert new[column] == old[column]
    assert "2 of 4 runs were there already" in capsys.readouterr().out


def test_a_run_whose_loss_is_not_finite_is_named_with_its_reason_and_the_others_finish(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = {"wild": ["model=rnn", "train.learning_rate=1e30"]}
    assert compare.run(plan(models(wild, TINY), "seeds=[7]"), here / "out", False) == 1
    good, bad = rows(here / "out")
    assert (good["name"], good["status"], good["problem"]) == ("tiny", "finished", "")
    assert (bad["name"], bad["status"]) == ("wild", "failed")
    assert re.match("failed: NonFiniteLossError: loss is not finite at step [23]: ", bad["problem"])
    shown = capsys.readouterr().out
    assert f"NOT COUNTED: wild seed 7: {bad['problem']}" in shown
    assert "MISSING: wild has no finished run of seed 7" in shown
    assert list(table(here / "out", "Models")) == ["tiny"]


def test_a_job_that_fails_before_it_has_a_folder_is_named_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(experiment, "run", fail)
    one_seed = replace(plan(), settings=replace(plan().settings, seeds=[7]))
    assert compare.run(one_seed, here / "out", False) == 1
    shown = capsys.readouterr().out
    for name in ("rnn", "tiny"):
        assert f"NOT COUNTED: {name} seed 7: failed: OSError: no space left on device" in shown
    assert [row["status"] for row in rows(here / "out")] == ["missing", "missing"]


def test_runs_that_exist_are_compared_without_training(
    here: Path, finished: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "run", never)
    monkeypatch.setenv("THERE", str(only(finished[0])))
    whole = only(finished[0])
    assert launch("runs=[$THERE/rnn,$THERE/tiny]", "baseline=rnn") == 0
    found = rows(only(here))
    assert [row["name"] for row in found] == ["rnn", "rnn", "transformer", "transformer"]
    for old, new in zip(rows(whole), found, strict=True):
        assert new["exact_match"] == old["exact_match"]
        assert (here / "runs" / "compare" / newest(here).name / new["folder"]).resolve() == whole / old["folder"]
    learned = table(only(here), "Exact match at length 8")
    assert learned["rnn"]["difference"] == "baseline"
    assert "±" in learned["transformer"]["difference"]


def test_among_runs_that_exist_the_baseline_is_one_of_their_names_or_the_last(
    here: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    there = f"runs=[{only(finished[0])}]"
    assert compare.run(plan(there), here / "one", False) == 0
    assert table(here / "one", "Exact match at length 8")["transformer"]["difference"] == "baseline"
    with pytest.raises(ConfigError, match=r"^baseline = tiny: must be one of rnn, transformer$"):
        compare.run(plan(there, "baseline=tiny"), here / "two", False)


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_compared(after: Path) -> None:
    whole = only(after)
    (whole / "rnn" / "seed1" / "config.yaml").write_text("a: [1")
    assert compare.run(plan(f"runs=[{whole}]"), after / "out", False) == 0
    assert len(rows(after / "out")) == 3
    notes = json.loads((after / "out" / "results.json").read_text())["notes"]
    assert "NOT COUNTED" in notes[0]
    assert "rnn/seed1/config.yaml: not readable" in notes[0]


def test_a_folder_without_runs_is_refused_and_leaves_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("runs=[nowhere]") == 2
    assert capsys.readouterr().err == "lookback: runs = nowhere: no run folder is there or below\n"
    assert list((here / "runs" / "compare").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["-m"], ["-m: is not for this program: it starts its jobs itself"]),
        (["modls=[rnn]"], ["modls = ['rnn']: no such key; the nearest is models"]),
        (["models=[rnn]", "train.stepz=5"], ["train.stepz = 5: no such key; the nearest is train.steps"]),
        (["seeds=[0,0]", "baseline=x"], ["2 problems", "seeds = 0: every seed counts once", "baseline = x"]),
        (
            ["models=[rnn]", "seeds=0,1"],
            ["seeds = 0,1: several values are a sweep: put a list in brackets"],
        ),
    ],
)
def test_a_wrong_command_line_is_told_and_leaves_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentences: list[str]
) -> None:
    assert command_line.launch(compare.run, "compare", arguments, build=comparison.plan) == 2
    error = capsys.readouterr().err
    assert error.startswith("lookback: ")
    for sentence in sentences:
        assert sentence in error
    assert list(here.iterdir()) == []


def test_help_teaches_with_examples_choices_and_settings(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for part in (
        "python scripts/compare.py task=copy seeds=[0,1]",
        "model: rnn, rnn_bahdanau",
        "match: parameters",
    ):
        assert part in shown
    assert list(here.iterdir()) == []


def test_the_script_calls_what_is_tested_here() -> None:
    assert "from lookback.compare import main" in SCRIPT.read_text(encoding="utf-8")


def test_a_flag_that_says_stop_keeps_a_job_from_starting(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "run", never)
    (here / "stop").touch()
    assert compare.train_one(here / "stop", {}, here / "run") == 128 + signal.SIGTERM
    assert not (here / "run").exists()


def planned(here: Path) -> Planned:
    """The first run of a comparison in the folder `out`, which is not there yet."""
    return Planned(plan().entries[0], 1, here / "out")


def test_an_earlier_run_is_linked_to_where_it_would_be(here: Path, finished: tuple[Path, str]) -> None:
    earlier = only(finished[0]) / "rnn" / "seed1"
    one = planned(here)
    one.take(earlier)
    assert one.reused
    assert (here / "out" / "rnn" / "seed1").is_symlink()
    assert (here / "out" / "rnn" / "seed1").resolve() == earlier
    again = planned(here)
    again.take(earlier)
    assert again.reused
    assert again.result("") == results.read(again.folder, "rnn", reused=True)


def test_a_link_to_what_is_gone_is_replaced(here: Path, finished: tuple[Path, str]) -> None:
    one = planned(here)
    one.folder.parent.mkdir(parents=True)
    one.folder.symlink_to("nowhere")
    one.take(only(finished[0]) / "rnn" / "seed1")
    assert one.reused
    assert (one.folder / "config.yaml").exists()


def test_what_stands_at_the_place_of_a_run_stays_when_there_is_a_twin_elsewhere(
    here: Path, finished: tuple[Path, str]
) -> None:
    one = planned(here)
    shutil.copytree(only(finished[0]) / "rnn" / "seed1", one.folder)
    one.take(only(finished[0]) / "rnn" / "seed1")
    assert not one.folder.is_symlink()
    assert not one.reused


def test_an_unfinished_run_is_linked_and_gone_on_with(here: Path, finished: tuple[Path, str]) -> None:
    earlier = here / "earlier"
    shutil.copytree(only(finished[0]) / "rnn" / "seed1", earlier)
    summary = results.read_summary(earlier)
    (earlier / "summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
    one = planned(here)
    one.take(earlier)
    assert not one.reused
    assert one.folder.resolve() == earlier


def test_the_error_of_a_job_counts_more_than_what_is_in_its_folder(here: Path, finished: tuple[Path, str]) -> None:
    one = planned(here)
    assert one.result("").problem == "unfinished: not begun"
    assert one.result("OSError: disk").problem == "failed: OSError: disk"
    shutil.copytree(only(finished[0]) / "rnn" / "seed1", one.folder)
    assert one.result("").problem == ""
    assert one.result("OSError: disk").problem == "failed: OSError: disk"
    assert one.result("OSError: disk").summary["status"] == "finished"
    other = Planned(plan().entries[1], 1, here / "out")
    shutil.copytree(one.folder, other.folder)
    assert other.result("").problem == "unfinished: another run is there"
    assert other.result("").raw == other.raw


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"code_version": "0ther"}, "holds a run that other code began"),
        ({}, "holds a run of another configuration"),
    ],
)
def test_a_job_does_not_go_on_with_another_run(
    here: Path, finished: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, change: dict[str, str], rule: str
) -> None:
    monkeypatch.setattr(experiment, "run", never)
    folder = here / "run"
    shutil.copytree(only(finished[0]) / "rnn" / "seed1", folder)
    (folder / "summary.json").write_text(json.dumps({**results.read_summary(folder), **change}))
    raw = planned(here).raw if change else {**planned(here).raw, "seed": 2}
    with pytest.raises(ConfigError, match=rule):
        compare.train_one(here / "stop", raw, folder)


def test_a_launcher_that_breaks_down_leaves_a_reason_and_what_was_finished(
    after: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finish_one_and_break(typed: Typed, folder: Path, *_: object) -> None:
        shutil.copytree(only(after) / "rnn" / "seed0", folder / "rnn" / "seed0")
        raise RuntimeError("a worker was killed\nand more")

    monkeypatch.setattr(compare, "run_jobs", finish_one_and_break)
    this = replace(plan(), settings=replace(plan().settings, reuse=False))
    assert compare.run(this, after / "out", False) == 1
    found = rows(after / "out")
    assert [(row["name"], row["seed"]) for row in found] == [
        ("rnn", "0"),
        ("tiny", "0"),
        ("rnn", "1"),
        ("tiny", "1"),
    ]
    assert [row["problem"] for row in found] == ["", *["failed: RuntimeError: a worker was killed"] * 3]


def test_earlier_runs_are_whole_runs_of_this_code_and_a_finished_one_before_others(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "code_version", lambda: "now")
    for name, digest, status, version in [
        ("a", "one", "interrupted", "now"),
        ("b", "one", "finished", "now"),
        ("c", "one", "interrupted", "now"),
        ("d", "two", "failed", "now"),
        ("e", "three", "finished", "before"),
        ("f/g", "four", "running", "now"),
        ("h", "five", "finished", "now"),
        ("i", "six", "finished", "now"),
        ("j", "seven", "finished", "now"),
        ("k", "eight", "finished", "now"),
        ("l", "nine", "interrupted", "now"),
        ("m", "ten", "finished", "now"),
        ("n", "one", "finished", "now"),
    ]:
        folder = here / name
        folder.mkdir(parents=True)
        summary = {"status": status, "config_digest": digest, "code_version": version, "changed": name == "k"}
        summary |= {"pairs_digest": "pairs"} if name == "n" else {}
        (folder / "summary.json").write_text(json.dumps(summary))
        for file in ("metrics.jsonl", "config.yaml"):
            (folder / file).touch()
    (here / "h" / "metrics.jsonl").unlink()
    (here / "i" / "config.yaml").unlink()
    (here / "j" / "summary.json").write_text("{")
    with files.locked(here / "l"), files.locked(here / "m"):  # as if others were working there
        found = compare.earlier_runs(here)
    assert found == {
        ("one", ""): here / "b",
        ("one", "pairs"): here / "n",
        ("two", ""): here / "d",
        ("four", ""): here / "f" / "g",
        ("ten", ""): here / "m",  # finished, so nobody will change it
    }
    assert compare.earlier_runs(here / "nowhere") == {}


@pytest.mark.slow
def test_two_jobs_side_by_side_end_with_the_same_bits_as_one_after_another(
    here: Path, finished: tuple[Path, str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *TYPED, "hydra.launcher.n_jobs=2"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, found = only(finished[0]), only(here)
    for old, new in zip(rows(whole), rows(found), strict=True):
        assert same_bits(found / new["folder"], whole / old["folder"])
        for column in old:
            if column.startswith(("exact_match", "token_accuracy", "parameters", "data_digest", "best_step")):
                assert new[column] == old[column]


@pytest.mark.slow
def test_ctrl_c_reaches_jobs_in_processes_of_their_own(here: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *TYPED, "train.steps=100000", "hydra.launcher.n_jobs=2"],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    while len(list(here.rglob("metrics.jsonl"))) < 2:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)  # to the first process alone
    shown, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert shown.count("unfinished: interrupted") == 2
    assert "MISSING: rnn has no finished run of seed 0, 1" in shown
    assert not list(here.rglob(command_line.STOP_FILE))
