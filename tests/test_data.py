"""Batches are a function of seed and step, and held-out strings stay out."""

import itertools

import numpy as np
import pytest
import torch

from lookback.data import DataSettings, collate, fingerprint, train_batch
from lookback.tasks.base import Ids, Split
from lookback.tasks.copy import Copy
from lookback.tasks.copy_or_reverse import CopyOrReverse
from lookback.tasks.duplicate import Duplicate
from lookback.tasks.reverse import Reverse
from lookback.tasks.synthetic import has_room, held_out, split_of
from lookback.tokens import BOS, EOS, FIRST_SYMBOL, PAD

SETTINGS = DataSettings(batch_size=7, min_length=2, max_length=5)


def sources(batch_source: torch.Tensor, lengths: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(row[1 : n - 1].tolist()) for row, n in zip(batch_source, lengths.tolist(), strict=True)]


def test_a_batch_depends_on_seed_and_step_only() -> None:
    task = Copy(alphabet_size=26)
    first = train_batch(task, SETTINGS, seed=3, step=11)
    train_batch(task, SETTINGS, seed=3, step=12)
    np.random.default_rng().random()
    torch.rand(1)
    again = train_batch(task, SETTINGS, seed=3, step=11)
    assert torch.equal(first.source, again.source)
    assert torch.equal(first.target, again.target)


@pytest.mark.parametrize(("seed", "step"), [(4, 11), (3, 12), (11, 3)])
def test_another_seed_or_step_gives_another_batch(seed: int, step: int) -> None:
    task = Copy(alphabet_size=26)
    one, two = train_batch(task, SETTINGS, 3, 11), train_batch(task, SETTINGS, seed, step)
    assert sources(one.source, one.source_lengths) != sources(two.source, two.source_lengths)


def test_all_lengths_of_the_range_are_equally_likely() -> None:
    task = Copy(alphabet_size=26)
    drawn = torch.cat([train_batch(task, SETTINGS, 0, step).source_lengths for step in range(300)]) - 2
    counts = torch.bincount(drawn, minlength=7).tolist()
    assert counts[:2] == [0, 0]
    assert len(counts) == 7 - 1 or counts[6] == 0
    assert all(abs(count - 525) < 100 for count in counts[2:6])  # 2100 / 4, five standard deviations


def test_rows_stand_between_marks_and_end_in_pads() -> None:
    batch = collate(Reverse(alphabet_size=5), [np.array([4, 5, 6]), np.array([7])])
    assert batch.source.tolist() == [[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD]]
    assert batch.target.tolist() == [[BOS, 6, 5, 4, EOS], [BOS, 7, EOS, PAD, PAD]]
    assert batch.source_lengths.tolist() == [5, 3]
    assert batch.decoder_input.tolist() == [[BOS, 6, 5, 4], [BOS, 7, EOS, PAD]]
    assert batch.labels.tolist() == [[6, 5, 4, EOS], [7, EOS, PAD, PAD]]


def test_training_never_meets_a_held_out_string() -> None:
    task = Copy(alphabet_size=26)
    settings = DataSettings(batch_size=500, min_length=3, max_length=3)
    seen = set()
    for step in range(100):  # 50,000 draws among 17,576 strings: nearly all of them
        batch = train_batch(task, settings, seed=0, step=step)
        seen |= set(sources(batch.source, batch.source_lengths))
    kept = {tuple(row) for split in ("validation", "test") for row in held_out(task, 3, 1000, split)}
    assert len(seen) > 15_000
    assert len(kept) > 900
    assert not seen & kept


def test_one_string_in_thirty_two_is_kept_for_each_split() -> None:
    letters = range(FIRST_SYMBOL, FIRST_SYMBOL + 26)
    splits = [split_of(np.array(row)) for row in itertools.product(letters, repeat=3)]
    for split in ("validation", "test"):
        assert splits.count(split) == pytest.approx(26**3 / 32, rel=0.2)


def test_lengths_one_and_two_have_no_room_with_26_letters() -> None:
    task = Copy(alphabet_size=26)
    assert [has_room(task, length) for length in (1, 2, 3)] == [False, False, True]


def test_held_out_strings_are_different_and_all_of_their_split() -> None:
    rows = held_out(Copy(alphabet_size=26), 5, 200, "test")
    assert len({tuple(row) for row in rows}) == 200
    assert all(split_of(row) == "test" for row in rows)


def test_where_there_is_no_room_every_string_is_evaluated_once() -> None:
    rows = held_out(Copy(alphabet_size=26), 1, 200, "test")
    assert sorted(int(row[0]) for row in rows) == list(range(FIRST_SYMBOL, FIRST_SYMBOL + 26))


def test_held_out_strings_are_the_same_for_every_task() -> None:
    one, two = (held_out(task(alphabet_size=26), 4, 9, "test") for task in (Copy, Reverse))
    assert np.array_equal(one, two)


def test_asking_for_more_strings_than_there_are_ends() -> None:
    found = held_out(Copy(alphabet_size=22), 3, 2000, "test")  # about 10,648 / 32 exist
    assert 200 < len(found) < 500


def test_a_range_turned_round_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^min_length must not be above max_length, but they are 5 and 4$"):
        DataSettings(batch_size=1, min_length=5, max_length=4)


class OddLength(Copy):
    """Turns strings of one length round and copies the others."""

    odd = 4

    def target(self, source: Ids) -> Ids:
        return source[::-1] if len(source) == self.odd else source


def digest(
    task: Copy | None = None, seed: int = 3, lengths: tuple[int, ...] = (4, 9), split: Split = "test"
) -> str:
    return fingerprint(task or Copy(alphabet_size=26), SETTINGS, seed, lengths, split)


def test_a_fingerprint_is_the_same_for_the_same_data() -> None:
    first = digest()
    np.random.default_rng().random()
    torch.rand(1)
    assert digest() == first
    assert len(first) == 12
    assert int(first, 16) >= 0


def test_a_fingerprint_knows_training_strings_test_strings_and_their_answers() -> None:
    trained, tested = OddLength(alphabet_size=26), OddLength(alphabet_size=26)
    tested.odd = 9  # lengths 2 to 5 are trained
    found = [
        digest(),
        digest(seed=4),
        digest(lengths=(4, 8)),
        digest(lengths=(4,)),
        digest(split="validation"),
        digest(lengths=(9,)),
        digest(trained, lengths=(9,)),  # other answers in training alone
        digest(tested),  # and in the test alone
        fingerprint(
            Copy(alphabet_size=26), DataSettings(batch_size=7, min_length=3, max_length=5), 3, (4, 9), "test"
        ),
    ]
    assert len(set(found)) == len(found)


def test_places_count_marks_and_what_a_task_adds() -> None:
    assert Reverse(alphabet_size=5).places(7) == (2 + 7, 7 + 1)
    assert Duplicate(alphabet_size=5).places(7) == (2 + 7, 2 * 7 + 1)
    assert CopyOrReverse(alphabet_size=5).places(7) == (2 + 1 + 7, 7 + 1)


def test_a_task_with_two_vocabularies_fills_batches_with_sources_that_are_longer_than_their_length() -> None:
    task = CopyOrReverse(alphabet_size=26)
    batch = train_batch(task, SETTINGS, seed=3, step=11)
    for source, count, target in zip(batch.source, batch.source_lengths.tolist(), batch.target, strict=True):
        assert source[0] == BOS
        assert int(source[1]) in task.marks.tolist()
        assert source[count - 1] == EOS
        assert target.tolist().index(EOS) == count - 2  # all but the mark
