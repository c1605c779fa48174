"""Tasks do what their docstrings say, and every task yaml makes one."""

import re

import numpy as np
import pytest

from lookback import config, launcher
from lookback.tasks.copy import Copy
from lookback.tasks.copy_or_reverse import CopyOrReverse
from lookback.tasks.reverse import Reverse
from lookback.tasks.sort import Sort
from lookback.tasks.synthetic import Synthetic
from lookback.tokens import FIRST_SYMBOL

YAMLS = sorted(path.stem for path in (launcher.CONFIGS / "task").glob("*.yaml") if path.stem != "pairs")


def make(name: str) -> Synthetic:
    task = config.build(launcher.compose("train", [f"task={name}"])).task()
    assert isinstance(task, Synthetic)
    return task


@pytest.mark.parametrize("name", YAMLS)
def test_the_examples_of_the_docstring_hold(name: str) -> None:
    task = make(name)
    examples = re.findall(r"^ *(\S+) -> (\S+)$", type(task).__doc__ or "", re.MULTILINE)
    assert len(examples) >= 2
    for source, target in examples:
        ids = np.array(task.source_vocabulary.encode(source))
        assert "".join(task.target_vocabulary.decode(task.target(ids))) == target


@pytest.mark.parametrize("name", YAMLS)
def test_the_alignment_points_at_the_symbol_that_is_written(name: str) -> None:
    task = make(name)
    for length in (1, 2, 5, 11):
        source = task.sample(np.random.default_rng(length), length)
        alignment = task.alignment(source)
        if alignment is not None:
            assert np.array_equal(source[alignment], task.target(source))


def test_sort_keeps_equal_letters_in_order() -> None:
    task = Sort(alphabet_size=3)
    alignment = task.alignment(np.array([6, 4, 6, 4]))
    assert alignment.tolist() == [1, 3, 0, 2]


def spelled(task: Synthetic, ids: np.ndarray) -> str:
    return "".join(task.source_vocabulary.decode(ids.tolist()))


def test_a_mark_says_whether_to_copy_or_to_reverse_and_letters_have_one_id_in_both_vocabularies() -> None:
    task = CopyOrReverse(alphabet_size=3)
    assert (task.source_vocabulary.symbols, task.target_vocabulary.symbols) == (tuple("abc><"), tuple("abc"))
    ids = np.array(task.source_vocabulary.encode("<ccab"))
    assert ids.tolist() == [8, 6, 6, 4, 5]
    assert task.target(ids).tolist() == [5, 4, 6, 6]
    assert task.alignment(ids).tolist() == [4, 3, 2, 1]
    ids = np.array(task.source_vocabulary.encode(">ccab"))
    assert ids.tolist() == [7, 6, 6, 4, 5]
    assert task.target(ids).tolist() == [6, 6, 4, 5]


def test_both_marks_are_drawn_about_equally_and_the_length_counts_letters() -> None:
    task, rng = CopyOrReverse(alphabet_size=5), np.random.default_rng(0)
    drawn = [spelled(task, task.sample(rng, 7)) for _ in range(400)]
    assert {len(text) for text in drawn} == {1 + 7}
    assert set("".join(text[1:] for text in drawn)) == set("abcde")
    assert abs([text[0] for text in drawn].count(">") - 200) < 50  # five standard deviations
    assert {text[0] for text in drawn} == set("><")
    assert task.num_sources(3) == 2 * 125


@pytest.mark.parametrize("text", ["abc", ">a<b", "a>b", "", "><"])
def test_a_source_without_its_mark_in_front_is_refused(text: str) -> None:
    task = CopyOrReverse(alphabet_size=3)
    with pytest.raises(ValueError, match=f"^source must begin with its only mark, > or <, but is '{text}'$"):
        task.target(np.array(task.source_vocabulary.encode(text), int))


def test_samples_use_every_letter_about_equally() -> None:
    task = Copy(alphabet_size=5)
    drawn = task.sample(np.random.default_rng(0), 5000)
    counts = np.bincount(drawn)[FIRST_SYMBOL:]
    assert len(counts) == 5
    assert drawn.min() == FIRST_SYMBOL
    assert np.abs(counts - 1000).max() < 150  # five standard deviations


def test_the_number_of_sources_is_a_power() -> None:
    assert Reverse(alphabet_size=26).num_sources(2) == 676


@pytest.mark.parametrize("size", [0, 63])
def test_an_alphabet_that_does_not_exist_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"^alphabet_size must be 1 to 62, but is {size}$"):
        Copy(alphabet_size=size)
