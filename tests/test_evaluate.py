"""Evaluation by length, on models whose answers are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lookback.attention import Maps
from lookback.data import collate, held_out, split_of
from lookback.evaluate import (
    EvaluateSettings,
    LengthScore,
    Validation,
    evaluate,
    evaluate_length,
    example,
    validate,
    validation_batch,
)
from lookback.models.base import Memory, Seq2Seq, State
from lookback.tasks.copy import Copy
from lookback.tasks.reverse import Reverse
from lookback.tokens import EOS, PAD

SETTINGS = EvaluateSettings(lengths=[1, 3, 6], strings=9, extra_tokens=4, split="test")
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
            following = following.masked_fill(following == EOS, 5)
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
    monkeypatch.setattr("lookback.evaluate.CHUNK_TOKENS", 7 * (5 + 2))  # seven strings at a time
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
    monkeypatch.setattr("lookback.evaluate.CHUNK_TOKENS", 2 * (6 + 2))  # two strings at a time
    assert result() == whole


def test_an_output_is_shown_up_to_its_first_end_with_pads_in_it() -> None:
    task = Copy(alphabet_size=26)
    batch = collate(task, [np.array([4, 5])])
    shown = example(task, batch, torch.tensor([[4, PAD, 5, EOS, 6, EOS]]), 0)
    assert shown.wrote == ["a", "<pad>", "b"]
    assert shown.ended
    assert not shown.right
