"""metrics.py against pencil and paper: pads never count, EOS always does."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lookback.metrics import score, sequence_loss
from lookback.tokens import EOS, PAD, UNK

BATCH, TARGET, SYMBOLS = 2, 5, 11
LABELS = torch.tensor([[7, 4, 9, 5, EOS], [6, EOS, PAD, PAD, PAD]])
REAL = 7  # five of the first row, two of the second


def random_logits(seed: int = 0) -> Tensor:
    return torch.randn(BATCH, TARGET, SYMBOLS, generator=torch.Generator().manual_seed(seed)) * 3


def by_hand(logits: Tensor, labels: Tensor, smoothing: float) -> float:
    """Mean over real tokens of (1 - smoothing) * -log p(label) + smoothing * mean over symbols of -log p."""
    total, count = 0.0, 0
    for row, row_labels in zip(logits.double().numpy(), labels.numpy(), strict=True):
        for scores, label in zip(row, row_labels, strict=True):
            if label != PAD:
                nats = -np.log(np.exp(scores) / np.exp(scores).sum())
                total += (1 - smoothing) * nats[label] + smoothing * nats.mean()
                count += 1
    return total / count


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.35])
def test_the_loss_is_the_hand_computed_mean_over_real_tokens(smoothing: float) -> None:
    loss = sequence_loss(random_logits(), LABELS, smoothing)
    assert float(loss) == pytest.approx(by_hand(random_logits(), LABELS, smoothing), abs=1e-5)


def test_a_model_that_knows_nothing_loses_the_log_of_the_number_of_symbols() -> None:
    assert float(sequence_loss(torch.zeros(BATCH, TARGET, SYMBOLS), LABELS)) == pytest.approx(math.log(SYMBOLS))


def test_a_coin_between_two_symbols_loses_one_bit_a_token() -> None:
    logits = torch.full((1, 2, SYMBOLS), -torch.inf)
    logits[:, :, [EOS, 7]] = 0.0
    assert float(sequence_loss(logits, torch.tensor([[7, EOS]]))) == pytest.approx(math.log(2))


def test_no_smoothing_is_the_default_and_equals_plain_cross_entropy() -> None:
    logits, real = random_logits(), LABELS != PAD
    plain = F.cross_entropy(logits[real], LABELS[real])
    torch.testing.assert_close(sequence_loss(logits, LABELS), plain)
    torch.testing.assert_close(sequence_loss(logits, LABELS, 0.0), plain)


def test_smoothing_stays_finite_when_a_model_is_sure() -> None:
    logits = torch.zeros(BATCH, TARGET, SYMBOLS).scatter(2, LABELS[:, :, None], 1000.0)
    assert float(sequence_loss(logits, LABELS, 0.0)) == pytest.approx(0.0)
    assert float(sequence_loss(logits, LABELS, 0.1)) == pytest.approx(0.1 * 1000 * (SYMBOLS - 1) / SYMBOLS)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ten_more_pad_columns_change_neither_loss_nor_gradients(smoothing: float) -> None:
    narrow = random_logits().requires_grad_()
    wide = torch.cat([random_logits(), torch.randn(BATCH, 10, SYMBOLS)], dim=1).requires_grad_()
    narrow_loss = sequence_loss(narrow, LABELS, smoothing)
    wide_loss = sequence_loss(wide, F.pad(LABELS, (0, 10), value=PAD), smoothing)
    torch.testing.assert_close(wide_loss, narrow_loss, rtol=0, atol=1e-6)
    (narrow_gradient,) = torch.autograd.grad(narrow_loss, narrow)
    (wide_gradient,) = torch.autograd.grad(wide_loss, wide)
    torch.testing.assert_close(wide_gradient[:, :TARGET], narrow_gradient, rtol=0, atol=1e-6)
    assert bool((wide_gradient[:, TARGET:] == 0).all())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_row_of_nothing_but_pads_adds_nothing_to_its_neighbours_loss(smoothing: float) -> None:
    labels = torch.stack([LABELS[0], torch.full_like(LABELS[0], PAD)])
    both = sequence_loss(random_logits(), labels, smoothing)
    alone = sequence_loss(random_logits()[:1], LABELS[:1], smoothing)
    torch.testing.assert_close(both, alone)


def test_what_is_predicted_at_a_pad_does_not_change_the_loss() -> None:
    changed = random_logits().masked_fill((LABELS == PAD)[:, :, None], 50.0)
    torch.testing.assert_close(sequence_loss(changed, LABELS), sequence_loss(random_logits(), LABELS))


def test_the_logit_of_eos_where_eos_is_due_changes_the_loss() -> None:
    logits = random_logits().requires_grad_()
    (gradient,) = torch.autograd.grad(sequence_loss(logits, LABELS), logits)
    assert float(gradient[0, 4, EOS]) < 0  # a higher logit there lowers the loss
    assert float(gradient[1, 1, EOS]) < 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_of_half_precision_logits_is_worked_out_in_float32(dtype: torch.dtype) -> None:
    logits = random_logits().to(dtype)
    loss = sequence_loss(logits, LABELS)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(by_hand(logits, LABELS, 0.0), abs=1e-5)


def test_all_real_tokens_wrong_and_all_pads_right_scores_zero() -> None:
    result = score(torch.where(LABELS == PAD, PAD, 10), LABELS)
    assert result.exact_match.tolist() == [False, False]
    assert result.hits.tolist() == [0, 0]
    assert result.token_accuracy == 0.0


def test_all_real_tokens_right_and_garbage_after_eos_is_an_exact_match() -> None:
    result = score(torch.where(LABELS == PAD, 10, LABELS), LABELS)
    assert result.exact_match.tolist() == [True, True]
    assert result.hits.tolist() == [5, 2]
    assert result.token_accuracy == 1.0


def test_tokens_counts_the_symbols_and_the_eos_of_each_reference() -> None:
    assert score(LABELS, LABELS).tokens.tolist() == [5, 2]


def test_one_wrong_symbol_costs_its_row_the_match_and_one_token_of_all_real_ones() -> None:
    output = LABELS.clone()
    output[0, 2] = 10
    result = score(output, LABELS)
    assert result.exact_match.tolist() == [False, True]
    assert result.hits.tolist() == [4, 2]
    assert result.token_accuracy == pytest.approx((REAL - 1) / REAL)


def test_a_row_that_never_writes_its_eos_is_no_exact_match() -> None:
    output = torch.tensor([[7, 4, 9, 5, 8], [6, PAD, PAD, PAD, PAD]])
    result = score(output, LABELS)
    assert result.exact_match.tolist() == [False, False]
    assert result.hits.tolist() == [4, 1]


def test_an_output_shorter_than_its_reference_misses_only_what_it_lacks() -> None:
    result = score(LABELS[:, :3], LABELS)
    assert result.exact_match.tolist() == [False, True]
    assert result.hits.tolist() == [3, 2]
    assert result.tokens.tolist() == [5, 2]


def test_an_empty_output_hits_nothing() -> None:
    result = score(LABELS[:, :0], LABELS)
    assert result.exact_match.tolist() == [False, False]
    assert result.hits.tolist() == [0, 0]


def test_an_output_wider_than_its_reference_is_not_looked_at_past_the_end() -> None:
    result = score(F.pad(LABELS, (0, 3), value=10), LABELS)
    assert result.exact_match.tolist() == [True, True]
    assert result.hits.tolist() == [5, 2]


def test_an_output_that_goes_on_where_eos_is_due_is_no_exact_match() -> None:
    output = torch.tensor([[7, 4, 9, 5, 8, EOS], [6, 6, EOS, PAD, PAD, PAD]])
    assert score(output, LABELS).exact_match.tolist() == [False, False]


def test_pad_columns_beside_both_change_no_score() -> None:
    result = score(LABELS, F.pad(LABELS, (0, 4), value=PAD))
    assert result.exact_match.tolist() == [True, True]
    assert result.token_accuracy == 1.0
    assert result.tokens.tolist() == [5, 2]


def test_nothing_is_right_where_an_unknown_symbol_is_wanted() -> None:
    labels = torch.tensor([[5, UNK, EOS], [5, 6, EOS]])
    found = score(labels, labels)
    assert found.exact_match.tolist() == [False, True]
    assert (found.hits.tolist(), found.tokens.tolist()) == ([2, 3], [3, 3])
