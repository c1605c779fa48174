"""What the folder of a run tells."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from conftest import write_run
from lookback import config, results
from lookback.results import Result
from lookback.schema import ConfigError


def test_a_row_has_what_configuration_summary_and_history_say(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "below" / "run",
        "model=rnn_luong",
        "model.d_model=18",
        "train.learning_rate=0.0015",
        "data.batch_size=48",
        seed=5,
        state_numbers=36,
        exact_match={1: 1.0, 4: 1 / 3, 8: 0.125, 10: 0.0625},
        validations=[(20, 0.5, 1.25), (40, 0.99, 2.125), (60, 1.0, 3.5)],
    )
    row = results.read(folder, "mine", reused=True).row(tmp_path)
    assert row == {
        "name": "mine",
        "model": "rnn_luong",
        "task": "reverse",
        "seed": 5,
        "status": "finished",
        "problem": "",
        "parameters": 7160,
        "d_model": 18,
        "learning_rate": 0.0015,
        "steps": 60,
        "batch_size": 48,
        "tokens": 2081,
        "best_step": 40,
        "exact_match": 0.125,
        "validation_exact_match": 0.625,
        "validation_loss": 0.375,
        "steps_to_99": 40,
        "seconds_to_99": 2.125,
        "train_seconds": 2.5,
        "training_tokens_per_second": 832.4,
        "decoding_tokens_per_second": 108.0,
        "sequential_steps": 19,
        "state_numbers": 36,
        "peak_memory_mib": 439.5,
        "threads": 1,
        "processor": "abacus",
        "device": "cpu",
        "torch": "2.9",
        "python": "3.12",
        "split": "test",
        "data_digest": "da7a5",
        "pairs_digest": "",
        "config_digest": config.digest(config.read(folder / "config.yaml")),
        "code_version": "0c0de0",
        "reused": True,
        "folder": "below/run",
        "exact_match/1": 1.0,
        "exact_match/4": 1 / 3,
        "exact_match/8": 0.125,
        "exact_match/10": 0.0625,
        "token_accuracy/1": 1.0,
        "token_accuracy/4": (1 + 1 / 3) / 2,
        "token_accuracy/8": 0.5625,
        "token_accuracy/10": 0.53125,
    }


def test_without_a_name_it_is_called_by_its_model(tmp_path: Path) -> None:
    assert results.read(write_run(tmp_path / "run", "model=rnn_luong")).name == "rnn_luong"


def test_a_model_with_some_numbers_for_each_symbol_has_no_state_size(tmp_path: Path) -> None:
    assert results.read(write_run(tmp_path / "run")).row()["state_numbers"] == ""


def test_what_was_not_reached_is_empty(tmp_path: Path) -> None:
    found = results.read(write_run(tmp_path / "run", validations=[(20, 0.5, 1.0), (40, 0.9899, 2.0)]))
    assert found.reached() is None
    assert (found.row()["steps_to_99"], found.row()["seconds_to_99"]) == ("", "")


@pytest.mark.parametrize(
    ("lengths", "judged", "score"), [([1, 8, 10], 8, 0.8), ([4, 1, 10], 4, 0.4), ([9, 10], None, "")]
)
def test_judged_is_the_longest_trained_length_that_was_tested(
    tmp_path: Path, lengths: list[int], judged: int | None, score: float | str
) -> None:
    folder = write_run(tmp_path / "run", exact_match={length: length / 10 for length in lengths})
    found = results.read(folder)
    assert (found.longest, found.judged) == (8, judged)
    assert found.row()["exact_match"] == score


def test_the_lines_of_a_validation_are_put_together_and_a_line_being_written_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", validations=[(20, 0.25, 1.5), (40, 0.5, 3.0)])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 60, "val/longest_exact_ma')
    assert results.read(folder).history == [
        {"step": s, "val/loss": 0.375, "val/exact_match": 0.625, "val/longest_exact_match": v, "train/seconds": t}
        for s, v, t in [(20, 0.25, 1.5), (40, 0.5, 3.0)]
    ]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_metrics_that_cannot_be_read_are_no_history(tmp_path: Path, content: bytes | None) -> None:
    folder = write_run(tmp_path / "run", validations=[(20, 1.0, 1.5)])
    (folder / "metrics.jsonl").unlink()
    if content is not None:
        (folder / "metrics.jsonl").write_bytes(content)
    assert results.read(folder).history == []


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff"])
def test_a_summary_that_is_missing_or_broken_means_unfinished(tmp_path: Path, content: bytes | None) -> None:
    folder = write_run(tmp_path / "run", seed=3)
    (folder / "summary.json").unlink()
    if content is not None:
        (folder / "summary.json").write_bytes(content)
    found = results.read(folder)
    assert (found.summary, found.judged) == ({}, None)
    assert found.problem == "unfinished: it has no summary.json"
    row = found.row()
    assert (row["status"], row["seed"], row["steps"], row["exact_match"]) == ("missing", 3, "", "")


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ("finished", ""),
        ("failed", "failed: OSError: disk"),
        ("running", "unfinished: running"),
        ("interrupted", "unfinished: interrupted"),
    ],
)
def test_only_a_finished_run_counts(tmp_path: Path, status: str, problem: str) -> None:
    folder = write_run(tmp_path / "run", status=status, reason="OSError: disk")
    assert results.read(folder).problem == problem


@pytest.mark.parametrize("node", ["seed", "task", "model", "data", "train"])
def test_a_configuration_that_lacks_what_is_needed_is_refused_by_name(tmp_path: Path, node: str) -> None:
    folder = write_run(tmp_path / "run")
    raw = config.read(folder / "config.yaml")
    del raw[node]
    OmegaConf.save(OmegaConf.create(raw), folder / "config.yaml")
    with pytest.raises(ConfigError) as caught:
        results.read(folder)
    assert str(caught.value) == f"{folder / 'config.yaml'}: lacks {node}"


def test_runs_that_cannot_be_read_do_not_keep_the_others_out(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, seed=seed) for seed, name in enumerate("abc")]
    (folders[1] / "config.yaml").write_text("a: [1")
    found, unreadable = results.read_all(folders)
    assert [run.folder for run in found] == [folders[0], folders[2]]
    [sentence] = unreadable
    assert sentence.startswith(f"NOT COUNTED: {folders[1] / 'config.yaml'}: not readable as yaml")


@pytest.mark.parametrize("content", [b"1\n", b"null\n", b"[2]\n", b'{"val/exact_match": 0.5}\n'])
def test_lines_that_are_none_of_ours_are_left_out(tmp_path: Path, content: bytes) -> None:
    folder = write_run(tmp_path / "run", validations=[(20, 0.25, 1.5)])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(content)
    assert [line["step"] for line in results.read(folder).history] == [20]


def test_a_finished_run_without_results_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", exact_match=None)
    (folder / "summary.json").write_text('{"status": "finished"}')
    with pytest.raises(ConfigError) as caught:
        results.read(folder)
    assert str(caught.value) == f"{folder / 'summary.json'}: says finished, but has no results"


def test_a_run_of_another_version_with_settings_unknown_now_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    raw = config.read(folder / "config.yaml")
    del raw["evaluate"]
    OmegaConf.save(OmegaConf.create(raw | {"older": 1}), folder / "config.yaml")
    assert results.read(folder).problem == ""


def test_steps_done_are_those_of_the_last_line(tmp_path: Path) -> None:
    assert results.steps_done(tmp_path) == 0
    lines: list[dict[str, Any]] = [{"step": step, "train/loss": 1 / 3} for step in range(1, 100)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert len(text) > 2000
    (tmp_path / "metrics.jsonl").write_text(text)
    assert results.steps_done(tmp_path) == 99
    (tmp_path / "metrics.jsonl").write_text('{"step": 7}\n')
    assert results.steps_done(tmp_path) == 7


def test_run_folders_are_found_below_and_through_links_each_once(tmp_path: Path) -> None:
    for name in ("all/one/seed0", "all/one/seed1", "all/two", "elsewhere/three"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "all" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "all" / "twice").symlink_to(tmp_path / "all" / "two")
    (tmp_path / "all" / "loop").symlink_to(tmp_path / "all")
    found = results.run_folders([tmp_path / "all", tmp_path / "all" / "two", tmp_path / "elsewhere" / "three"])
    wanted = [tmp_path / name for name in ("all/one/seed0", "all/one/seed1", "all/two", "elsewhere/three")]
    assert sorted(path.resolve() for path in found) == wanted


def test_run_folders_stand_in_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    given = [tmp_path / "b", tmp_path / "a"]
    assert results.run_folders(given) == given
    assert results.run_folders([tmp_path]) == [tmp_path / name for name in "abc"]


@pytest.mark.parametrize("name", ["empty", "nowhere"])
def test_a_folder_without_a_run_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    with pytest.raises(ConfigError) as caught:
        results.run_folders([tmp_path / "run", tmp_path / name])
    assert str(caught.value) == f"runs = {tmp_path / name}: no run folder is there or below"


def test_the_folder_of_a_row_is_told_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Result = results.read(write_run(tmp_path / "a" / "run"))
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert found.row()["folder"] == str(Path("..") / "a" / "run")
    assert found.row(tmp_path)["folder"] == str(Path("a") / "run")
