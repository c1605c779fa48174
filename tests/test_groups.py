"""What may be averaged, and what is set aside and told."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import write_run
from lookback import config, results
from lookback.groups import Group, differing, flat, grouped, signature, tasks
from lookback.intervals import estimate

T_1 = 12.7062  # Student's t at 0.975 with 1 degree of freedom


def read(*folders: Path) -> list[results.Result]:
    return [results.read(folder) for folder in folders]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two models with two seeds each, in no order; the last is unfinished. And a copy of one."""
    found = [
        write_run(tmp_path / "a", "model=rnn", seed=4, exact_match={4: 0.75, 8: 0.3}),
        write_run(tmp_path / "b", "model=transformer", seed=1, exact_match={4: 1.0, 8: 0.9, 10: 0.6}),
        write_run(tmp_path / "c", "model=rnn", seed=1, exact_match={4: 0.5, 8: 0.1, 10: 0.0}),
        write_run(tmp_path / "d", "model=transformer", seed=4, status="interrupted", exact_match={}),
    ]
    return [*found, shutil.copytree(found[0], tmp_path / "copy of a")]


def test_two_models_two_seeds_one_run_unfinished_one_copied(folders: list[Path]) -> None:
    groups, aside = grouped(read(*folders))
    assert [(group.name, [run.seed for run in group.results]) for group in groups] == [
        ("rnn", [1, 4]),
        ("transformer", [1]),
    ]
    rnn, transformer = groups
    assert rnn.by_seed("exact_match") == {1: 0.1, 4: 0.3}
    found = estimate(rnn.values("exact_match"))
    assert found is not None
    assert found.half_width is not None
    assert found.mean == pytest.approx(0.2)
    assert found.half_width == pytest.approx(T_1 * math.sqrt(0.02 / 2), rel=1e-4)  # squares 0.01 + 0.01
    assert transformer.values("exact_match") == [0.9]
    assert [(run.name, run.seed, run.problem, run.folder) for run in aside] == [
        ("transformer", 4, "unfinished: interrupted", folders[3]),
        ("rnn", 4, f"duplicate: the same configuration and seed as {folders[0]}", folders[4]),
    ]


def test_a_copy_counts_once_whichever_is_met_first(folders: list[Path]) -> None:
    groups, aside = grouped(read(folders[4], *folders[:4]))
    assert groups[0].values("exact_match") == [0.1, 0.3]
    assert [run.folder for run in aside] == [folders[3], folders[0]]


def test_a_run_that_failed_does_not_keep_its_good_twin_out(tmp_path: Path) -> None:
    bad = write_run(tmp_path / "bad", seed=2, status="failed", reason="disk")
    good = write_run(tmp_path / "good", seed=2)
    groups, aside = grouped(read(bad, good))
    assert [run.folder for run in groups[0].results] == [good]
    assert [(run.folder, run.problem) for run in aside] == [(bad, "failed: disk")]


def test_a_class_is_told_by_its_yaml_and_names_that_would_be_too_long_are_numbered(tmp_path: Path) -> None:
    short = [write_run(tmp_path / task, f"task={task}") for task in ("copy", "sort")]
    assert [group.name for group in grouped(read(*short))[0]] == ["transformer (copy)", "transformer (sort)"]
    more = ["model.d_ff=48", "train.steps=70", "train.warmup_steps=7", "data.max_length=9"]
    longer = [*short, write_run(tmp_path / "c", "task=copy", *more, exact_match={9: 0.5})]
    assert [group.name for group in grouped(read(*longer))[0]] == [f"transformer (number {at})" for at in (1, 2, 3)]


def test_runs_of_other_steps_are_never_averaged_and_the_names_say_what_differs(tmp_path: Path) -> None:
    found = read(
        write_run(tmp_path / "a", "model=rnn", seed=0, exact_match={8: 0.25}),
        write_run(tmp_path / "b", "model=rnn", "train.steps=70", seed=1, exact_match={8: 0.75}),
        write_run(tmp_path / "c", "model=rnn", seed=3, exact_match={8: 0.5}),
        write_run(tmp_path / "d", "model=transformer", "train.steps=80", exact_match={8: 1.0}),
        write_run(tmp_path / "e", "model=rnn", "train.steps=70", seed=1, exact_match={8: 0.75}),
    )
    groups, aside = grouped(found)
    assert {group.name: group.values("exact_match") for group in groups} == {
        "rnn (train.steps=60)": [0.25, 0.5],
        "rnn (train.steps=70)": [0.75],
        "transformer": [1.0],
    }
    assert all(run.name == group.name for group in groups for run in group.results)
    assert [run.name for run in aside] == ["rnn (train.steps=70)"]


def test_every_setting_that_differs_is_in_the_name_and_nothing_else(tmp_path: Path) -> None:
    found = read(
        write_run(tmp_path / "a", "model=rnn", seed=6, exact_match={8: 0.25}),
        write_run(tmp_path / "b", "model=rnn", "model.d_model=18", "task=copy", "board.images_every=7"),
    )
    groups, _ = grouped(found)
    assert [group.name for group in groups] == [
        "rnn (reverse, model.d_model=119)",
        "rnn (copy, model.d_model=18)",
    ]


def test_how_a_run_is_logged_does_not_split_a_group(tmp_path: Path) -> None:
    found = read(
        write_run(tmp_path / "a", seed=0),
        write_run(tmp_path / "b", "board.images_every=0", "board.probe_lengths=[3]", seed=1),
        write_run(tmp_path / "c", "train.save_every=11", seed=2),
    )
    groups, aside = grouped(found)
    assert [(group.name, len(group.results)) for group in groups] == [("transformer", 3)]
    assert aside == []


def test_how_often_a_run_is_validated_does_split_a_group(tmp_path: Path) -> None:
    found = read(write_run(tmp_path / "a", seed=0), write_run(tmp_path / "b", "train.validate_every=11", seed=1))
    assert len(grouped(found)[0]) == 2


def test_runs_of_other_names_are_never_averaged(tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    groups, _ = grouped([results.read(one, "one"), results.read(two, "two")])
    assert [group.name for group in groups] == ["one", "two"]


def test_the_signature_knows_every_setting_but_seed_and_logging() -> None:
    raw = {"seed": 1, "board": {"images_every": 2}, "train": {"save_every": 3, "steps": 4}, "data": {"b": 5}}
    assert signature(raw) == signature({**raw, "seed": 7, "board": {"images_every": 8}})
    assert signature(raw) == signature({**raw, "train": {"save_every": 9, "steps": 4}})
    assert signature(raw) != signature({**raw, "train": {"save_every": 3, "steps": 6}})
    assert signature(raw) != signature({**raw, "data": {"b": 6}})


def test_a_nested_configuration_becomes_dotted_keys() -> None:
    assert flat({"a": 1, "b": {"c": [2, 3], "d": {"e": "f"}}}) == {"a": 1, "b.c": [2, 3], "b.d.e": "f"}


def test_differing_keys_are_told_with_everyone_s_value() -> None:
    raws: dict[str, dict[str, Any]] = {
        "x": {"a": 1, "b": {"c": [2]}},
        "y": {"a": 1, "b": {"c": [3]}},
        "z": {"a": 1, "d": True},
    }
    assert differing(raws) == {
        "b.c": {"x": [2], "y": [3], "z": None},
        "d": {"x": None, "y": None, "z": True},
    }


def test_only_lengths_that_all_runs_were_tested_on_are_compared(tmp_path: Path) -> None:
    runs = read(
        write_run(tmp_path / "a", seed=0, exact_match={10: 0.1, 4: 0.4, 1: 1.0}),
        write_run(tmp_path / "b", seed=1, exact_match={4: 0.5, 8: 0.2, 10: 0.3}),
    )
    assert Group("x", runs).lengths == [4, 10]
    assert Group("x").lengths == []


def test_a_value_that_a_run_lacks_is_left_out(tmp_path: Path) -> None:
    runs = read(
        write_run(tmp_path / "a", seed=2, validations=[(20, 0.5, 1.0)]),
        write_run(tmp_path / "b", seed=3, validations=[(40, 1.0, 2.0)]),
    )
    assert Group("x", runs).by_seed("steps_to_99") == {3: 40.0}
    assert Group("x", runs).values("no such column") == []


def test_tasks_are_told_apart_by_the_settings_that_more_than_one_of_them_has(tmp_path: Path) -> None:
    own = {"_target_": "lookback.tasks.pairs.Pairs", "train": "/far/away/words.tsv", "min_count": 3}
    other = {**own, "train": "/far/away/names.tsv"}
    drawn = {"_target_": "lookback.tasks.copy.Copy", "alphabet_size": 26}
    groups = []
    for name, node in (("one", own), ("two", other), ("three", drawn)):
        result = read(write_run(tmp_path / name))[0]
        groups.append(Group(name, [replace(result, raw={**result.raw, "task": node})]))
    assert tasks(groups) == {
        "one": "pairs train=words.tsv min_count=3",
        "two": "pairs train=names.tsv min_count=3",
        "three": "copy",
    }


def pairs_run(folder: Path, path: str, digest: str, seed: int, score: float) -> Path:
    """A run on a file of pairs, as its folder tells it; the file itself is not looked at."""
    written = write_run(folder, seed=seed, exact_match={4: score}, pairs_digest=digest)
    raw = config.read(written / "config.yaml")
    node = {"_target_": "lookback.tasks.pairs.Pairs", "train": path, "valid": "v.tsv", "split": None, "test": None}
    (written / "config.yaml").write_text(json.dumps({**raw, "task": node}))
    return written


def test_runs_on_a_file_that_changed_in_between_are_no_seeds_of_one_model(tmp_path: Path) -> None:
    found = read(
        pairs_run(tmp_path / "a", "one.tsv", "0ld", 0, 0.25),
        pairs_run(tmp_path / "b", "one.tsv", "0ld", 1, 0.75),
        pairs_run(tmp_path / "c", "one.tsv", "new", 2, 1.0),
    )
    groups, aside = grouped(found)
    assert aside == []
    assert {group.name: [run.seed for run in group.results] for group in groups} == {
        "transformer (task.pairs=0ld)": [0, 1],
        "transformer (task.pairs=new)": [2],
    }
    assert list(tasks(groups).values()) == ["pairs pairs=0ld", "pairs pairs=new"]


def test_the_same_pairs_under_another_name_are_the_same_task(tmp_path: Path) -> None:
    found = read(
        pairs_run(tmp_path / "a", "one.tsv", "same", 0, 0.25),
        pairs_run(tmp_path / "b", "copy of one.tsv", "same", 1, 0.75),
    )
    groups, _ = grouped(found)
    assert [[run.seed for run in group.results] for group in groups] == [[0, 1]]
    assert tasks(groups) == {}


def test_files_are_told_by_their_names_where_names_tell_them_apart(tmp_path: Path) -> None:
    found = read(
        pairs_run(tmp_path / "a", "x/one.tsv", "0ld", 0, 0.25),
        pairs_run(tmp_path / "b", "x/two.tsv", "new", 1, 0.75),
        pairs_run(tmp_path / "c", "y/two.tsv", "0ther", 1, 0.75),
    )
    assert list(tasks(grouped(found)[0]).values()) == [
        "pairs train=one.tsv",
        "pairs train=two.tsv pairs=new",
        "pairs train=two.tsv pairs=0ther",
    ]
