"""The task whose pairs are in files: vocabularies, epochs, what is tested on, and what a run keeps."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lookback.tasks.pairs
from conftest import train
from lookback import checkpoint, command_line, config, experiment, launcher, results
from lookback.data import batch_of, fingerprint
from lookback.decode import greedy
from lookback.pair_file import PairFileError
from lookback.pair_lists import pair_lists
from lookback.run_folder import checkpoint_path
from lookback.schema import ConfigError
from lookback.tasks.base import Pair
from lookback.tasks.pairs import Pairs
from lookback.tokens import EOS, FIRST_SYMBOL, UNK

TRAIN = "abc\tc b a\nab\tb a\nb\tb\nca\ta c\nabca\ta c b a\n"
VALID = "cb\tb c\nbca\ta c b\n"


def made(
    folder: Path, text: str = TRAIN, valid: str | None = VALID, test: str | None = None, **changes: Any
) -> Pairs:
    """A task of files with these texts; targets are words."""
    paths: dict[str, str | None] = {"train": None, "valid": None, "test": None}
    for name, content in (("train", text), ("valid", valid), ("test", test)):
        if content is not None:
            path = folder / f"{name}.tsv"
            path.write_text(content, encoding="utf-8", newline="")
            paths[name] = str(path)
    values: dict[str, Any] = {
        "split": None,
        "source_unit": "character",
        "target_unit": "word",
        "shared": False,
        "min_count": 1,
        "normalise": "none",
        "max_length": 20,
        "on_error": "stop",
    }
    return Pairs(**{**paths, **values, **changes})


def text_of(task: Pairs, pair: Pair) -> str:
    source, target = (ids.tolist() for ids in pair)
    wanted = task.written(task.target_vocabulary.decode(target))
    return f"{''.join(task.source_vocabulary.decode(source))}\t{wanted}"


def texts(task: Pairs, found: list[Pair]) -> list[str]:
    return [text_of(task, pair) for pair in found]


def test_vocabularies_are_those_of_the_training_pairs_alone(tmp_path: Path) -> None:
    task = made(tmp_path, valid="xyz\tq b\n")
    assert task.source_vocabulary.symbols == ("a", "b", "c")  # 5, 4 and 3 times
    assert task.target_vocabulary.symbols == ("a", "b", "c")
    assert [ids.tolist() for ids in task.probe_pairs([3])[0]] == [[UNK] * 3, [UNK, FIRST_SYMBOL + 1]]


def test_a_shared_vocabulary_counts_both_sides(tmp_path: Path) -> None:
    task = made(tmp_path, "ab\tc\nab\tc\n", shared=True)
    assert task.source_vocabulary.symbols == task.target_vocabulary.symbols == ("a", "b", "c")
    assert made(tmp_path, "ab\tc\nab\tc\n").target_vocabulary.symbols == ("c",)


def test_rare_symbols_are_left_out(tmp_path: Path) -> None:
    task = made(tmp_path, min_count=4)
    assert task.source_vocabulary.symbols == ("a", "b")
    assert sorted(task.spell("abc").tolist()) == [UNK, FIRST_SYMBOL, FIRST_SYMBOL + 1]


@pytest.mark.parametrize(("count", "sizes"), [(2, [1, 2, 2]), (64, [5]), (5, [5]), (4, [2, 3])])
def test_an_epoch_has_every_pair_once_in_batches_of_nearly_one_size(
    tmp_path: Path, count: int, sizes: list[int]
) -> None:
    task = made(tmp_path)
    batches = task.batches_an_epoch(count, range(1, 9))
    assert batches == len(sizes)
    for epoch in range(3):
        found = [task.training_pairs(count, range(1, 9), 7, epoch * batches + number) for number in range(batches)]
        assert sorted(map(len, found)) == sizes
        assert sorted(texts(task, [pair for part in found for pair in part])) == sorted(TRAIN.splitlines())


def test_the_order_is_a_function_of_seed_and_epoch_alone(tmp_path: Path) -> None:
    text = "".join(f"{'a' * number}\tx\n" for number in range(1, 13))
    task = made(tmp_path, text)

    def order(seed: int, epoch: int) -> list[int]:
        return [len(source) for source, _ in task.training_pairs(64, range(1, 99), seed, epoch)]

    first = order(3, 0)
    others = [order(3, 1), order(4, 0)]
    assert order(3, 0) == first
    assert all(sorted(other) == sorted(first) and other != first for other in others)


def test_only_sources_of_the_asked_lengths_are_trained_on(tmp_path: Path) -> None:
    task = made(tmp_path)
    found = task.training_pairs(64, range(2, 4), 0, 0)
    assert sorted(texts(task, found)) == ["ab\tb a", "abc\tc b a", "ca\ta c"]
    assert task.batches_an_epoch(2, range(2, 4)) == 2
    with pytest.raises(PairFileError, match=r"train\.tsv has no source of 7 to 9 symbols"):
        task.training_pairs(64, range(7, 10), 0, 0)


def test_pairs_with_one_source_and_several_targets_are_all_learned(tmp_path: Path) -> None:
    task = made(tmp_path, "a\tx\na\ty\na\ty\n")
    assert sorted(texts(task, task.training_pairs(9, range(1, 5), 0, 0))) == ["a\tx", "a\ty", "a\ty"]
    assert texts(task, [(task.spell("a"), task.known_answer(task.spell("a")))]) == ["a\tx"]


def test_exactly_one_of_valid_and_split_is_given(tmp_path: Path) -> None:
    for changes in ({"valid": None}, {"split": 0.5}):
        with pytest.raises(
            ValueError, match=r"^valid \(a file\) or split .* must be given, and not both, but they are"
        ):
            made(tmp_path, **changes)


def test_a_split_has_no_source_on_both_sides(tmp_path: Path) -> None:
    task = made(tmp_path, "".join(f"{'ab' * number}\tx\n" * 2 for number in range(1, 9)), None, split=0.25)
    held, same = task.validation_pairs(range(1, 99), 3)
    trained = task.training_pairs(99, range(1, 99), 0, 0)
    assert held is same
    assert (len(held), len(trained)) == (4, 12)
    assert not set(texts(task, held)) & set(texts(task, trained))


def test_validation_is_all_pairs_or_an_even_choice_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = made(tmp_path)
    assert texts(task, task.validation_pairs(range(1, 2), 1)[0]) == VALID.splitlines()
    monkeypatch.setattr(lookback.tasks.pairs, "MOST_VALIDATION", 3)
    task = made(tmp_path, valid="".join(f"{'a' * number}\tb\n" for number in range(1, 10)))
    assert [len(source) for source, _ in task.validation_pairs(range(1, 2), 1)[0]] == [1, 4, 7]


def test_tests_are_the_test_file_by_length_or_the_validation_pairs(tmp_path: Path) -> None:
    task = made(tmp_path, test="abc\tc\nb\tb\ncba\ta\nbb\tb b\n")
    found = task.test_pairs(None, lambda length: None, "test")
    assert {length: texts(task, some) for length, some in found.items()} == {
        1: ["b\tb"],
        2: ["bb\tb b"],
        3: ["abc\tc", "cba\ta"],
    }
    assert {length: len(some) for length, some in task.test_pairs([3, 8], lambda length: 1, "test").items()} == {
        3: 1
    }
    assert sorted(task.test_pairs(None, lambda length: None, "validation")) == [2, 3]
    assert task.tested("test") == "test"
    without = made(tmp_path)
    assert without.tested("test") == "validation"
    assert sorted(without.test_pairs(None, lambda length: None, "test")) == [2, 3]


def test_probes_are_the_nearest_in_length(tmp_path: Path) -> None:
    task = made(tmp_path, valid="a\tb\nabcab\tb\nabc\tb\n")
    assert [len(source) for source, _ in task.probe_pairs([9, 3, 1])] == [1, 3, 5]


def test_an_answer_is_what_the_files_say(tmp_path: Path) -> None:
    task = made(tmp_path, test="aaa\tc c\n")
    for text in ("ca\ta c", "cb\tb c", "aaa\tc c"):
        source = task.spell(text.partition("\t")[0])
        assert text_of(task, (source, task.known_answer(source))) == text
    assert task.answer(task.spell("cccc")) is None
    with pytest.raises(ValueError, match=r"^source must have a known answer, but 'cccc' has none$"):
        task.known_answer(task.spell("cccc"))
    with pytest.raises(ValueError, match=r"^source must have a symbol at least, but is ''$"):
        task.spell("")


def test_normalising_holds_for_what_is_typed_too(tmp_path: Path) -> None:
    files = {"text": "o\u0308\tx\n", "valid": "\u00f6\tx\n"}
    assert made(tmp_path, **files, normalise="NFC").spell("o\u0308").tolist() == [FIRST_SYMBOL]
    assert made(tmp_path, **files).spell("\u00f6").tolist() == [UNK]


def test_the_notes_count_what_can_mislead(tmp_path: Path) -> None:
    task = made(tmp_path, "ab\tx\nab\tx\nab\ty\nno tab\nc\tx\n", "ab\tx\nab\tz\nb\tx\n", on_error="skip")
    assert task.notes(range(1, 9)) == [
        "train: 4 pairs, 1 repeated, 1 source with several targets",
        "  line 4 is left out: must have one tab, but has none",
        "validation: 3 pairs, 1 source with several targets; WARNING: 2 sources and 1 pair in train too",
        "validation: 1 symbol of targets unknown, so that outputs without them are wrong",
        "symbols: 3 of sources, 2 of targets",
    ]
    rare = made(tmp_path, "ab\tx\nab\tx y\nb\tz\n", "ab\tx\n", "ab\tz\n", min_count=2)
    assert rare.notes(range(2, 5))[3:-1] == [
        "test: WARNING: 1 source in validation too",
        "train: 2 symbols of targets unknown, never written",
        "test: 1 symbol of targets unknown, so that outputs without them are wrong",
        "train: 1 pair not learned from, whose sources are not 2 to 4 symbols long "
        "(data.min_length, data.max_length)",
    ]


def test_a_split_lists_what_was_left_out_once(tmp_path: Path) -> None:
    task = made(tmp_path, "ab\tx\nno tab\nb\ty\n", None, split=0.5, on_error="skip")
    assert sum("line 2" in line for line in task.notes(range(1, 9))) == 1


def test_words_are_the_same_whatever_stands_between_them(tmp_path: Path) -> None:
    words = {"source_unit": "word", "target_unit": "word"}
    task = made(tmp_path, "one two\tx\n one  two \t x\nthree\ty\n", "one   two\tx\n", **words)
    assert task.notes(range(1, 9))[:2] == [
        "train: 3 pairs, 1 repeated",
        "validation: 1 pair; WARNING: 1 source and 1 pair in train too",
    ]
    text = "".join(f"w{number % 9}{' ' * (1 + number // 9)}v\tx\n" for number in range(36))
    halves = made(tmp_path, text, None, split=0.5, **words)
    seen = {name: set(file.sources) for name, file in halves.files.items()}
    assert [len(sources) for sources in seen.values()] == [5, 4]
    assert not seen["train"] & seen["validation"]
    assert halves.digest == made(tmp_path, text.replace("  ", " "), None, split=0.5, **words).digest


def test_files_that_have_changed_are_not_those_of_the_run(tmp_path: Path) -> None:
    task = made(tmp_path)
    state, source = task.state(), task.spell("ab")
    again = made(tmp_path)
    again.restore(state)
    assert text_of(again, (source, again.known_answer(source))) == "ab\tb a"
    other = made(tmp_path, TRAIN.replace("b a\nb", "a a\nb"))
    other.restore(state)
    assert other.answer(source) is None
    for ask in (lambda: other.probe_pairs([2]), lambda: other.test_pairs(None, lambda length: 1, "test")):
        with pytest.raises(PairFileError, match=r"train\.tsv: its pairs are not those that the run learned from$"):
            ask()


def test_two_of_ten_shared_rows_are_warned_of(tmp_path: Path) -> None:
    rows = [f"w{number}\tx\n" for number in range(18)]
    task = made(tmp_path, "".join(rows[:10]), "".join(rows[8:]))
    assert "WARNING: 2 sources and 2 pairs in train too" in task.notes(range(1, 9))[1]


def test_a_restored_task_needs_no_file(tmp_path: Path) -> None:
    task = made(tmp_path)
    state = json.loads(json.dumps(task.state()))
    for path in tmp_path.glob("*.tsv"):
        path.unlink()
    again = Pairs(**{**config_of(tmp_path), "train": "gone.tsv", "valid": "gone.tsv"})
    again.restore(state)
    assert again.source_vocabulary.symbols == task.source_vocabulary.symbols
    assert again.target_vocabulary.symbols == task.target_vocabulary.symbols
    assert again.places(99) == (4 + 2, 4 + 1)
    assert again.places(2) == (2 + 2, 4 + 1)
    assert again.answer(again.spell("ab")) is None
    with pytest.raises(PairFileError, match=r"gone\.tsv: no such file"):
        again.probe_pairs([3])


def config_of(folder: Path) -> dict[str, Any]:
    """The settings of `made`."""
    node = launcher.compose("train", ["task=pairs", f"task.train={folder}/a", f"task.valid={folder}/b"])["task"]
    return {key: value for key, value in node.items() if key != "_target_"}


def test_a_change_of_the_file_is_seen(tmp_path: Path) -> None:
    assert made(tmp_path).source_vocabulary.symbols == ("a", "b", "c")
    assert made(tmp_path, "xyzzy\tq\n").source_vocabulary.symbols == ("y", "z", "x")


# ------------------------------------------------------------------------------------------- through the command


def overrides(folder: Path, *more: str) -> list[str]:
    """A run on the files of `made`."""
    paths = [f"task.{name}={folder / name}.tsv" for name in ("train", "valid")]
    own = ["data.max_length=99", "evaluate.lengths=null", "evaluate.strings=null", "task.target_unit=word"]
    return ["task=pairs", *paths, *own, *more]


def problems(*typed: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        config.build(launcher.compose("train", list(typed)))
    return [str(problem) for problem in error.value.problems]


def test_paths_are_taken_from_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACE", str(tmp_path))
    raw = launcher.compose("train", ["task=pairs", "task.train=train.tsv", "task.valid=$PLACE/valid.tsv"])
    assert raw["task"]["train"] == str(tmp_path / "train.tsv")
    assert raw["task"]["valid"] == str(tmp_path / "valid.tsv")
    assert raw["task"]["test"] is None


def test_what_is_wrong_with_files_is_said_before_training(tmp_path: Path) -> None:
    made(tmp_path, "abc\n")
    assert problems(*overrides(tmp_path)) == [
        f"task: {tmp_path / 'train.tsv'}, line 1: must have one tab, but has none"
    ]
    made(tmp_path)
    missing = tmp_path / "missing.tsv"
    assert problems(*overrides(tmp_path, f"task.test={missing}")) == [f"task: {missing}: no such file"]
    [rule] = problems(*overrides(tmp_path, "task.split=0.1"))
    assert rule.startswith("task: valid (a file) or split (a share of train) must be given, and not both")
    short = ["model/positions=learned", "model.positions.max_length=5"]
    assert problems(*overrides(tmp_path, *short)) == [
        "task: model.positions.max_length is 5, and the longest pair needs 6"
    ]


def test_drawn_strings_have_no_epochs_and_no_end() -> None:
    found = problems("train.epochs=3", "evaluate.lengths=null", "evaluate.strings=null")
    assert [line.partition(" = ")[0] for line in found] == ["evaluate.lengths", "evaluate.strings", "train.epochs"]


def test_steps_and_epochs_are_given_one_at_a_time(tmp_path: Path) -> None:
    made(tmp_path)
    for typed, given in (
        (["train.steps=9"], "9 and 30"),
        (["train.epochs=null"], "None and None"),
    ):
        assert problems(*overrides(tmp_path, *typed)) == [
            f"train: one of steps and epochs must be given, and the other null, but they are {given}"
        ]
    assert problems("train.steps=null") == ["train.steps = null: must be given where strings are drawn"]


def test_a_stored_run_that_had_both_counts_epochs() -> None:
    stored = {"train": {"steps": 1000, "epochs": 7}}
    assert config.upgraded(stored)["train"]["steps"] is None
    assert config.upgraded({"train": {"steps": 1000, "epochs": None}})["train"]["steps"] == 1000


@pytest.mark.parametrize(("least", "most"), [(50, 90), (1, 0)])
def test_lengths_that_no_source_has_are_named(tmp_path: Path, least: int, most: int) -> None:
    made(tmp_path, "abcd\tx\n" if most == 0 else TRAIN)
    most = most or 3
    assert problems(*overrides(tmp_path, f"data.min_length={least}", f"data.max_length={most}")) == [
        f"data: {tmp_path / 'train.tsv'} has no source of {least} to {most} symbols "
        "(data.min_length to data.max_length)"
    ]


def test_a_file_must_be_named(tmp_path: Path) -> None:
    assert problems("task=pairs") == ["task.train: must be the path of a file"]
    assert problems("task=pairs", "task.train=3") == ["task.train = 3: must be the path of a file"]


def test_epochs_take_the_place_of_steps(tmp_path: Path) -> None:
    made(tmp_path)
    few = overrides(tmp_path, "data.batch_size=2")
    assert config.build(launcher.compose("train", [*few, "train.epochs=7"])).train.steps == 7 * 3
    assert config.build(launcher.compose("train", [*few, "train.epochs=null", "train.steps=11"])).train.steps == 11


RUN = [
    "train.steps=null",
    "train.epochs=2",
    "train.validate_every=1",
    "data.batch_size=64",
    "board.probe_lengths=[2,3]",
]


def test_three_rows_train_and_one_row_is_evaluated(tmp_path: Path) -> None:
    made(tmp_path, "ab\tb a\nb\tb\nca\ta c\n", "cb\tb c\n")
    assert train(tmp_path / "run", *overrides(tmp_path, *RUN)) == 0
    summary = results.read_summary(tmp_path / "run")
    assert (summary["status"], summary["steps"], summary["split"]) == ("finished", 2, "validation")
    assert summary["strings"] == {"2": 1}
    assert summary["overall"]["strings"] == 1
    assert summary["tokens"] == 2 * (3 + 2 + 3)


def test_a_run_folder_predicts_without_the_files(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    made(data)
    assert train(run, *overrides(data, *RUN)) == 0
    shutil.rmtree(data)
    for which in ("best", "last", 0):
        task, model = experiment.load(run, which)
        assert task.source_vocabulary.symbols == ("a", "b", "c")
        batch = batch_of([(task.spell("ab?"), np.array([EOS]))])
        assert greedy(model, batch.source, batch.source_lengths, 4).tokens.shape[0] == 1


def resume(folder: Path, *more: str) -> int:
    return command_line.launch(experiment.run, "train", [f"resume={folder}", *more])


def test_a_resumed_run_ends_with_the_weights_of_the_uninterrupted_one(tmp_path: Path) -> None:
    made(tmp_path)
    steady = ["train.epochs=null", "train.steps=9", "train.warmup_steps=100", "train.validate_every=3"]
    more = overrides(
        tmp_path, "data.batch_size=2", *steady
    )  # the rate rises in a line, however many steps there are
    assert train(tmp_path / "whole", *more) == 0
    assert train(tmp_path / "parts", *more, "train.steps=4") == 0
    assert resume(tmp_path / "parts", "train.steps=9") == 0
    whole, parts = (checkpoint.load(checkpoint_path(tmp_path / name, "last")) for name in ("whole", "parts"))
    assert whole["task"] == parts["task"]
    assert all(torch.equal(weights, parts["model"][name]) for name, weights in whole["model"].items())


def test_a_run_does_not_go_on_with_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    assert train(tmp_path / "run", *overrides(tmp_path, *RUN)) == 0
    made(tmp_path, TRAIN.replace("b\tb", "b\ta"))  # as many symbols as before
    assert resume(tmp_path / "run", "train.epochs=3") != 0
    assert "task: its files are not what they were when this run began" in capsys.readouterr().err


def test_training_stops_early_when_validation_gets_no_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path)
    patient = ["train.epochs=null", "train.steps=40", "train.validate_every=2", "train.patience=3"]
    assert train(tmp_path / "run", *overrides(tmp_path, *patient, "train.learning_rate=1e-12")) == 0
    summary = results.read_summary(tmp_path / "run")
    assert summary["status"] == "finished"
    assert summary["steps"] - summary["best_step"] == 3 * 2
    assert (
        f"stopped early: no validation was better than that of step {summary['best_step']}"
        in capsys.readouterr().out
    )


def test_other_files_have_another_digest(tmp_path: Path) -> None:
    digests = Counter[str]()
    for content in (TRAIN, TRAIN, TRAIN.replace("abca", "abcc")):
        made(tmp_path, content)
        built = config.build(launcher.compose("train", overrides(tmp_path)))
        digests[fingerprint(built.task(), built.data, 0, None, "test")] += 1
    assert sorted(digests.values()) == [1, 2]


def test_lengths_that_no_pair_has_are_refused(tmp_path: Path) -> None:
    made(tmp_path)
    found = problems(*overrides(tmp_path, "evaluate.lengths=[7,9]", "data.max_length=8", "data.min_length=6"))
    assert found == [
        f"data: {tmp_path / 'train.tsv'} has no source of 6 to 8 symbols (data.min_length to data.max_length)",
        f"evaluate.lengths: {tmp_path / 'valid.tsv'} has no source of lengths [7, 9]",
    ]
    some = config.build(launcher.compose("train", overrides(tmp_path, "evaluate.lengths=[7,3]")))
    assert some.evaluate.lengths == [7, 3]


def test_no_answer_is_known_where_a_source_may_be_any_of_several(tmp_path: Path) -> None:
    text = "aX\tbb\naY\tba\nbb\tbb\nab\tab\nba\tba\nab\tba\n"
    task = made(tmp_path, text, "ab\tbb\nba\tbb\n", min_count=2, target_unit="character")
    assert task.answer(task.spell("aY")) is None
    assert task.answer(task.spell("aQ")) is None
    found = task.answer(task.spell("ab"))
    assert found is not None
    assert task.target_vocabulary.decode(found.tolist()) == ["a", "b"]  # the first, of train
    assert task.answer(task.spell("bbb")) is None


def test_pairs_that_are_tested_only_must_fit_the_model_too(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("ab\tx\nabc\ty\n")
    (tmp_path / "v.tsv").write_text(f"{'ab' * 9}\tx\n")
    typed = [
        "task=pairs",
        f"task.train={tmp_path / 't.tsv'}",
        f"task.valid={tmp_path / 'v.tsv'}",
        "data.max_length=5",
    ]
    raw = launcher.compose("train", [*typed, "model/positions=learned", "model.positions.max_length=19"])
    assert [str(problem) for problem in config.check(raw)] == [
        "task: model.positions.max_length is 19, and the longest pair needs 20"
    ]


def test_targets_that_look_like_symbols_between_spaces_are_noticed(tmp_path: Path) -> None:
    told = "targets look like symbols between spaces (k æ t): task.target_unit=word reads them so"
    text = "cat\tk æ t\nship\tʃ ɪ p\n"
    assert told in made(tmp_path, text, "a\tk\n", target_unit="character").notes(range(1, 9))
    assert told not in made(tmp_path, text, "a\tk\n").notes(range(1, 9))
    other = made(tmp_path, "1\tone thing\n2\ttwo\n", "1\tx\n", target_unit="character")
    assert not any("look like" in line for line in other.notes(range(1, 9)))


def test_a_word_that_reads_unk_is_not_what_is_unknown(tmp_path: Path) -> None:
    words = {"source_unit": "word", "target_unit": "word"}
    task = made(tmp_path, "a\t<unk>\nb\t<unk>\n", "a\tfoo\n", **words)
    ids = task.validation_pairs(range(1, 9), 9)[0][0][1].tolist()
    assert task.target_vocabulary.decode(ids) == ["<<unk>>"]
    assert task.target_vocabulary.decode(task.target_vocabulary.encode(["<unk>"])) == ["<unk>"]


def test_the_lengths_that_are_learned_from_are_those_of_the_file(tmp_path: Path) -> None:
    task = made(tmp_path, "ab\tx\nabcd\ty\nabcdefg\tz\n", "abcde\tx\n")
    assert task.learned_lengths(range(1, 1001)) == (2, 7)
    assert task.learned_lengths(range(3, 7)) == (4, 4)


def test_a_task_that_is_made_again_reads_no_file_again_until_one_changes(tmp_path: Path) -> None:
    first = made(tmp_path, "ab\tx\n", "ab\ty\n")
    lists = first.lists
    again = pair_lists(first._wanted)
    assert again is lists
    assert again.encoded is first.encoded
    assert made(tmp_path, "ab\tx\ncd\tx\n", "ab\ty\n").lists is not lists
