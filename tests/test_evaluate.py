"""Evaluation by length, on models whose answers are known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lookback.attention import Maps
from lookback.by_length import LengthScore, batches, beyond, evaluate, evaluate_length, few, overall, pairs_of
from lookback.data import collate
from lookback.evaluate import (
    EvaluateSettings,
    Example,
    Validation,
    example,
    validate,
    validation_batch,
)
from lookback.models.base import Memory, Seq2Seq, State
from lookback.tasks.copy import Copy
from lookback.tasks.copy_or_reverse import CopyOrReverse
from lookback.tasks.reverse import Reverse
from lookback.tasks.synthetic import held_out, split_of
from lookback.tokens import EOS, PAD

SETTINGS = EvaluateSettings(
    lengths=[1, 3, 6], strings=9, symbols=None, extra_tokens=4, exact_only=False, split="test"
)
SYMBOLS = 30


class Copier(Seq2Seq):
    """Copies its source; free-running it writes the symbol after the one it was given, so a slip lasts."""

    def __init__(self, slip_at: int = -1, never_ends: bool = False) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))
        self.slip_at = slip_at
        self.never_ends = never_ends

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source, lengths)

    def _write(self, memory: Memory, place: int) -> Tensor:
        following = memory.states[:, min(place + 1, memory.states.shape[1] - 1)].clone()
        if place == self.slip_at:
            following = torch.where(following == EOS, following, 4 + (following - 4 + 1) % 26)
        if self.never_ends:
            following = following.masked_fill((following == EOS) | (following == PAD), 5)
        return torch.nn.functional.one_hot(following, SYMBOLS).float()

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        return torch.stack([self._write(memory, place) for place in range(target.shape[1])], dim=1)

    def start(self, memory: Memory, max_length: int) -> State:
        return State(memory, 0, {})

    def sequential_steps(self, source: int, target: int) -> int:
        return 1

    def step(self, token: Tensor, state: State) -> Tensor:
        state.length += 1
        return self._write(state.memory, state.length - 1)


def test_a_model_that_copies_is_right_everywhere() -> None:
    rows = evaluate(Copier(), Copy(alphabet_size=26), SETTINGS)
    assert [row.length for row in rows] == [1, 3, 6]
    for row in rows:
        assert (row.exact_match, row.token_accuracy, row.teacher_forced, row.cut_off) == (1.0, 1.0, 1.0, 0.0)
        assert row.strings == 9
        assert row.example.right
    assert [row.held_out for row in rows] == [False, True, True]


def test_one_wrong_symbol_a_row_costs_the_row_and_one_token() -> None:
    row = evaluate_length(Copier(slip_at=2), Copy(alphabet_size=26), SETTINGS, 6)
    assert row.exact_match == 0.0
    assert row.token_accuracy == pytest.approx(6 / 7)  # six symbols and EOS
    assert row.teacher_forced == pytest.approx(6 / 7)
    assert [wrong for _, wrong in row.example.marked()] == [False, False, True, False, False, False]


def test_outputs_that_do_not_end_are_wrong_and_counted() -> None:
    row = evaluate_length(Copier(never_ends=True), Copy(alphabet_size=26), SETTINGS, 3)
    assert row.exact_match == 0.0
    assert row.cut_off == 1.0
    assert len(row.example.wrote) == 4 + 4  # the answer's length with EOS, and extra_tokens
    assert not row.example.ended


def test_the_example_is_the_first_wrong_one() -> None:
    task = Copy(alphabet_size=26)
    row = evaluate_length(Copier(), Reverse(alphabet_size=26), SETTINGS, 6)
    first = task.source_vocabulary.decode(held_out(task, 6, 9, "test")[0].tolist())
    assert row.example.source == first
    assert not row.example.right


def test_every_wrong_output_is_kept_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    task, settings = Reverse(alphabet_size=3), replace(SETTINGS, strings=40)
    monkeypatch.setattr("lookback.by_length.CHUNK_TOKENS", 7 * (5 + 2))  # seven strings at a time
    row = evaluate_length(Copier(), task, settings, 5)
    sources = [task.source_vocabulary.decode(source.tolist()) for source in held_out(task, 5, 40, "test")]
    wrong = [source for source in sources if source != source[::-1]]  # a palindrome copied is reversed
    assert 0 < len(wrong) < len(sources)
    assert [shown.source for shown in row.failures] == [shown.wrote for shown in row.failures] == wrong
    assert row.example == row.failures[0]
    assert row.exact_match == pytest.approx(1 - len(wrong) / 40)


def test_where_nothing_is_wrong_the_first_output_is_shown_and_no_failure_kept() -> None:
    task = Copy(alphabet_size=26)
    row = evaluate_length(Copier(), task, SETTINGS, 6)
    assert row.failures == []
    assert row.example.source == task.source_vocabulary.decode(held_out(task, 6, 9, "test")[0].tolist())


def test_the_same_strings_are_used_whatever_the_random_state() -> None:
    texts = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        texts.append([r.example.source for r in evaluate(Copier(), Copy(alphabet_size=26), SETTINGS)])
    assert texts[0] == texts[1]


def test_validation_and_test_strings_differ() -> None:
    task = Copy(alphabet_size=26)
    one, two = ({tuple(row) for row in held_out(task, 5, 50, split)} for split in ("validation", "test"))
    assert not one & two


def test_the_validation_batch_has_one_string_for_each_length_asked() -> None:
    batch = validation_batch(Copy(alphabet_size=26), [3, 5, 3, 4])
    assert sorted(batch.source_lengths.tolist()) == [5, 5, 6, 7]
    assert len({tuple(row) for row in batch.source.tolist()}) == 4


def test_validation_scores_freely_and_by_teacher_forcing() -> None:
    task = Copy(alphabet_size=26)
    batch = validation_batch(task, [3, 4, 5, 6])
    result, examples = validate(Copier(slip_at=3), task, batch, 4, 2)
    assert result.exact_match == 0.25  # only the string of length 3 has no fourth symbol
    assert result.token_accuracy == pytest.approx(1 - 3 / (4 + 5 + 6 + 7))
    assert [len(example.source) for example in examples] == [3, 5]


def test_the_loss_of_validation_is_the_mean_over_real_tokens() -> None:
    task = Copy(alphabet_size=26)
    batch = collate(task, held_out(task, 3, 2, "validation"))
    result, _ = validate(Copier(), task, batch, 4, 1)
    one_hot = torch.nn.functional.one_hot(torch.tensor(5), SYMBOLS).float()
    assert result.loss == pytest.approx(-torch.log_softmax(one_hot, 0)[5].item())


@pytest.mark.parametrize(
    ("new", "old", "better"),
    [
        (Validation(0.9, 0.5, 0.5), Validation(0.1, 0.9, 0.4), True),
        (Validation(0.1, 0.9, 0.4), Validation(0.9, 0.5, 0.5), False),
        (Validation(0.1, 0.5, 0.5), Validation(0.2, 0.5, 0.5), True),
        (Validation(0.2, 0.5, 0.5), Validation(0.2, 0.5, 0.5), False),
        (Validation(0.2, 0.5, 0.0), None, True),
    ],
)
def test_exact_match_decides_what_is_best_and_then_the_loss(
    new: Validation, old: Validation | None, better: bool
) -> None:
    assert new.better_than(old) is better


def test_the_validation_batch_holds_validation_strings() -> None:
    batch = validation_batch(Copy(alphabet_size=26), [3, 4, 5, 5])
    rows = [row[1 : n - 1].numpy() for row, n in zip(batch.source, batch.source_lengths.tolist(), strict=True)]
    assert {split_of(row) for row in rows} == {"validation"}


def test_evaluation_in_many_batches_is_the_same_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def result() -> LengthScore:
        found = evaluate_length(Copier(slip_at=2), Copy(alphabet_size=26), SETTINGS, 6)
        return replace(found, tokens_per_second=1.0)

    whole = result()
    monkeypatch.setattr("lookback.by_length.CHUNK_TOKENS", 2 * (6 + 2))  # two strings at a time
    assert result() == whole


def test_an_output_is_shown_up_to_its_first_end_with_pads_in_it() -> None:
    task = Copy(alphabet_size=26)
    batch = collate(task, [np.array([4, 5])])
    shown = example(task, batch, torch.tensor([[4, PAD, 5, EOS, 6, EOS]]), 0)
    assert shown.wrote == ["a", "<pad>", "b"]
    assert shown.ended
    assert not shown.right


MIXED = replace(SETTINGS, lengths=[6, 3, 5])


def timeless(rows: list[LengthScore]) -> list[LengthScore]:
    return [replace(row, tokens_per_second=1.0) for row in rows]


class Sizes(Copier):
    """Remembers the shape of each batch that it decodes."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(**changes)
        self.seen: list[tuple[int, ...]] = []

    def start(self, memory: Memory, max_length: int) -> State:
        self.seen.append(tuple(memory.states.shape))
        return super().start(memory, max_length)


@pytest.mark.parametrize("exact_only", [False, True])
@pytest.mark.parametrize("changes", [{"slip_at": 4}, {"never_ends": True}, {}])
def test_a_length_scores_the_same_whichever_others_share_its_batches(
    changes: dict[str, Any], exact_only: bool
) -> None:
    task, model, settings = Copy(alphabet_size=26), Sizes(**changes), replace(MIXED, exact_only=exact_only)
    together = timeless(evaluate(model, task, settings))
    assert model.seen == [(9, 3 + 2), (18, 6 + 2)]
    assert [row.length for row in together] == [6, 3, 5]
    assert together == timeless([evaluate_length(model, task, settings, length) for length in (6, 3, 5)])


def test_an_output_is_cut_off_after_its_own_right_length_beside_longer_ones() -> None:
    rows = evaluate(Copier(never_ends=True), Copy(alphabet_size=26), MIXED)
    assert [{len(shown.wrote) for shown in row.failures} for row in rows] == [{6 + 1 + 4}, {3 + 1 + 4}, {5 + 1 + 4}]
    assert {row.cut_off for row in rows} == {1.0}


class Late(Copier):
    """Ends its output so many places too late."""

    def __init__(self, late: int) -> None:
        super().__init__()
        self.late = late

    def _write(self, memory: Memory, place: int) -> Tensor:
        ends = memory.lengths - 2 + self.late == place
        following = torch.full_like(memory.lengths, 7).masked_fill(ends, EOS)
        return torch.nn.functional.one_hot(following, SYMBOLS).float()


@pytest.mark.parametrize(("late", "cut_off"), [(4 - 1, 0.0), (4, 0.0), (4 + 1, 1.0)])
def test_an_end_counts_only_within_the_extra_tokens_of_its_own_row(late: int, cut_off: float) -> None:
    rows = evaluate(Late(late), Copy(alphabet_size=26), replace(MIXED, lengths=[3, 20]))
    assert [row.cut_off for row in rows] == [cut_off, cut_off]


def test_batches_have_at_most_so_many_tokens_and_rows_and_every_string_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lookback.by_length.CHUNK_TOKENS", 40)
    monkeypatch.setattr("lookback.by_length.CHUNK_ROWS", 4)
    strings = [np.zeros(length, int) for length in (1, 1, 1, 1, 1, 2, 8, 8, 8, 30, 50, 51)]
    found = batches(strings)
    assert [(part.start, part.stop) for part in found] == [
        (0, 4),
        (4, 5),
        (5, 6),
        (6, 9),
        (9, 10),
        (10, 11),
        (11, 12),
    ]
    assert batches([]) == []
    assert [(part.start, part.stop) for part in batches(strings, 3)] == [
        (0, 4),
        (4, 5),
        (5, 6),
        (6, 9),
        (9, 10),
        (10, 12),
    ]


def test_long_strings_are_decoded_eight_at_a_time_where_nothing_else_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lookback.by_length.CHUNK_TOKENS", 16)
    counts = []
    for exact_only in (True, False):
        model = Sizes()
        evaluate_length(model, Copy(alphabet_size=26), replace(SETTINGS, exact_only=exact_only), 6)
        counts.append([shape[0] for shape in model.seen])
    assert counts == [[8, 1], [2, 2, 2, 2, 1]]


def test_many_lengths_of_few_strings_share_batches() -> None:
    model = Sizes()
    settings = replace(SETTINGS, lengths=list(range(41, 53)), strings=8)
    evaluate(model, Copy(alphabet_size=26), settings)
    assert [shape[0] for shape in model.seen] == [88, 8]  # 41 and its marks are 43, and 1.25 of that 53.75: to 51


@pytest.mark.parametrize(
    ("symbols", "counts"), [(None, [200, 200, 200]), (2000, [200, 20, 8]), (1000, [50, 10, 8]), (3, [8, 8, 8])]
)
def test_symbols_limit_the_strings_of_a_length_but_leave_eight(symbols: int | None, counts: list[int]) -> None:
    settings = replace(SETTINGS, strings=200, symbols=symbols)
    assert [settings.count(length) for length in (20 if symbols == 1000 else 10, 100, 251)] == counts
    assert replace(settings, strings=5).count(251) == 5


def test_fewer_strings_are_the_first_of_more() -> None:
    task = Copy(alphabet_size=26)
    some, all_ = (pairs_of(task, replace(SETTINGS, symbols=symbols), 6) for symbols in (48, None))
    assert len(some) == 8
    assert all(np.array_equal(one, two) for (one, _), (two, _) in zip(some, all_, strict=False))
    assert evaluate_length(Copier(), task, replace(SETTINGS, symbols=48), 6).strings == 8


class Counter(Copier):
    """Counts decoding steps and teacher-forced passes."""

    steps = passes = 0

    def step(self, token: Tensor, state: State) -> Tensor:
        self.steps += 1
        return super().step(token, state)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        self.passes += 1
        return super().decode(target, memory, maps)


def test_exact_only_leaves_outputs_at_their_first_wrong_token_and_measures_nothing_else() -> None:
    model, settings = Counter(slip_at=2), replace(SETTINGS, exact_only=True)
    row = evaluate_length(model, Copy(alphabet_size=26), settings, 6)
    assert (model.steps, model.passes) == (3, 0)
    assert (row.exact_match, row.strings, row.failures) == (0.0, 9, [])
    assert (row.token_accuracy, row.teacher_forced, row.cut_off) == (None, None, None)
    assert row.example.wrote[:2] == row.example.wanted[:2]
    assert len(row.example.wrote) == 3
    assert row.example.verdict() == "left at its first wrong symbol, number 3"


def test_the_right_past_is_given_only_to_rows_that_were_written_wrong() -> None:
    model = Counter()
    assert evaluate_length(model, Copy(alphabet_size=26), SETTINGS, 6).teacher_forced == 1.0
    assert model.passes == 0
    task, settings = Reverse(alphabet_size=2), replace(SETTINGS, strings=32)
    row = evaluate_length(model, task, settings, 5)
    assert model.passes == 1
    sources = held_out(task, 5, 32, "test")
    assert len(sources) == 32  # all there are
    same = sum(int((source == source[::-1]).sum()) + 1 for source in sources)  # places, and EOS
    assert row.teacher_forced == row.token_accuracy == same / (32 * 6)


class Rowwise(Copier):
    """Writes freely as `Copier` does, and with the right past the first half of each row's symbols wrong."""

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        logits = super().decode(target, memory, maps)
        logits[:, : target.shape[1] // 2] = torch.nn.functional.one_hot(torch.tensor(PAD), SYMBOLS).float()
        return logits


def test_each_row_s_forced_score_is_its_own() -> None:
    task, model = Reverse(alphabet_size=2), Rowwise()
    row = evaluate_length(model, task, replace(SETTINGS, strings=32), 5)
    right = sum(np.array_equal(source, source[::-1]) for source in held_out(task, 5, 32, "test"))
    assert right == 8  # palindromes of five: three free letters
    late = sum(int((source == source[::-1])[3:].sum()) + 1 for source in held_out(task, 5, 32, "test"))
    palindromes = right * 3  # places 4 and 5 and EOS of each are in `late`
    assert row.teacher_forced == pytest.approx((right * 6 + late - palindromes) / (32 * 6))


def test_exact_only_finds_the_exact_match_of_whole_decoding() -> None:
    task = Reverse(alphabet_size=2)  # copies of palindromes are right
    settings = replace(SETTINGS, lengths=[3, 5, 4, 14], strings=200)
    whole, left = (evaluate(Copier(), task, replace(settings, exact_only=only)) for only in (False, True))
    assert [row.exact_match for row in left] == [row.exact_match for row in whole]
    assert 0 < left[1].exact_match < 1


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"never_ends": True}, "left at its first wrong symbol, number 4"),
        ({"slip_at": 0}, "left at its first wrong symbol, number 1"),
        ({}, "right"),
    ],
)
def test_where_an_output_was_left_is_told(changes: dict[str, Any], verdict: str) -> None:
    row = evaluate_length(Copier(**changes), Copy(alphabet_size=26), replace(SETTINGS, exact_only=True), 3)
    assert row.example.verdict() == verdict


def test_an_end_that_came_too_early_is_told_when_outputs_are_left_too() -> None:
    row = evaluate_length(Late(-2), Copy(alphabet_size=26), replace(SETTINGS, exact_only=True), 3)
    assert row.example.verdict() == "left at its first wrong symbol, number 1"
    row = evaluate_length(Late(-3), Copy(alphabet_size=26), replace(SETTINGS, exact_only=True), 3)
    assert row.example.verdict() == "ended 3 too early"


def test_the_seconds_of_a_batch_are_shared_by_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 12.0])
    monkeypatch.setattr("lookback.by_length.time.perf_counter", lambda: next(ticks))
    rows = evaluate(Copier(), Copy(alphabet_size=26), replace(MIXED, lengths=[10, 8, 9], strings=5))
    tokens = 5 * (11 + 9 + 10)
    assert [row.tokens_per_second for row in rows] == [pytest.approx(tokens / 2.0)] * 3
    ticks = iter([10.0, 12.0])
    settings = replace(SETTINGS, strings=5, exact_only=True)
    row = evaluate_length(Copier(slip_at=1), Copy(alphabet_size=26), settings, 6)
    assert row.tokens_per_second == pytest.approx(5 * 2 / 2.0)  # two tokens of each were decoded


def test_stop_is_heard_between_batches_and_what_is_not_done_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lookback.by_length.CHUNK_ROWS", 6)  # nine strings of each length: batches of 6
    model = Sizes()

    def stop() -> bool:
        return len(model.seen) == 2

    rows = evaluate(model, Copy(alphabet_size=26), MIXED, stop)
    assert len(model.seen) == 2
    assert [row.length for row in rows] == [3]  # the shortest come first, and three strings of length 5 are missing


class Skipper(Copier):
    """Copies what follows the first symbol of its source."""

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source[:, 1:], lengths - 1)


def test_a_task_with_a_mark_and_two_vocabularies_is_decoded_and_shown() -> None:
    task = CopyOrReverse(alphabet_size=20)
    row = evaluate_length(Skipper(), task, replace(SETTINGS, strings=40), 6)
    sources = ["".join(task.source_vocabulary.decode(ids.tolist())) for ids in held_out(task, 6, 40, "test")]
    backwards = [text for text in sources if text[0] == "<"]
    assert 0 < len(backwards) < 40
    assert ["".join(shown.source) for shown in row.failures] == backwards  # no palindrome is among them
    assert ["".join(shown.wanted) for shown in row.failures] == [text[:0:-1] for text in backwards]
    assert row.exact_match == pytest.approx(1 - len(backwards) / 40)


def result(length: int, exact_match: float, token_accuracy: float | None) -> LengthScore:
    shown = Example([], [], [], True)
    return LengthScore(length, 7, 21, True, exact_match, token_accuracy, None, None, 9.0, shown)


def test_over_all_strings_each_string_and_each_token_counts_alike() -> None:
    rows = [result(2, 1.0, 1.0), replace(result(9, 0.25, 0.5), strings=14, tokens=63)]
    assert overall(rows) == {"strings": 21, "exact_match": (7 * 1.0 + 14 * 0.25) / 21, "token_accuracy": 0.625}
    assert overall([result(2, 0.5, None)]) == {"strings": 7, "exact_match": 0.5}


def test_beyond_training_every_length_counts_alike() -> None:
    rows = [result(20, 1.0, 1.0), result(21, 0.5, 0.75), result(40, 0.25, 0.5), result(3, 1.0, 1.0)]
    assert beyond(rows, 20) == {"lengths": 2, "exact_match": 0.375, "token_accuracy": 0.625}
    assert beyond(rows, 40) is None
    assert beyond([result(21, 0.5, None)], 20) == {"lengths": 1, "exact_match": 0.5}


def test_few_lengths_are_all_and_many_are_thinned_to_twelve_with_both_ends() -> None:
    assert few([5]) == [5]
    assert few(list(range(12))) == list(range(12))
    assert few(list(range(13)))[::11] == [0, 12]
    assert few(list(range(41, 501))) == [41, 83, 124, 166, 208, 250, 291, 333, 375, 417, 458, 500]
