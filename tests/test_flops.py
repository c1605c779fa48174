"""Arithmetic is counted as by pencil and by torch's own counter."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lookback import flops, learner
from lookback.benchmark import measure
from lookback.config import build
from lookback.flops import Widths, multiply_adds, product, step_flops
from lookback.launcher import compose

SIZES = ["model.d_model=12", "model.num_heads=3", "model.d_ff=20", "model.num_layers=2"]
WIDTHS = Widths(d_model=12, d_ff=20, num_layers=2, target_symbols=30)


def test_one_symbol_of_each_is_counted_as_by_pencil() -> None:
    """d_model 2, d_ff 3, one layer, 5 symbols, a source of 1, a target of 1; each product of a row and a matrix.

    Encoder: 4 projections of 2 x 2, feed-forward 2 x 3 + 3 x 2, one pair of 2 + 2: 16 + 12 + 4 = 32.
    Decoder: 4 projections of its own, query and output of cross-attention, key and value of the source: 8 x 4,
    feed-forward 12, two pairs: 32 + 12 + 8 = 52. Output: 2 x 5.
    """
    assert multiply_adds(Widths(d_model=2, d_ff=3, num_layers=1, target_symbols=5), [1], [1]) == 32 + 52 + 10


def test_rows_add_up_and_the_causal_half_is_what_a_target_may_see() -> None:
    one, other = multiply_adds(WIDTHS, [7], [5]), multiply_adds(WIDTHS, [4], [6])
    assert multiply_adds(WIDTHS, [7, 4], [5, 6]) == one + other
    lengths = [multiply_adds(WIDTHS, [1], [length]) for length in (1, 2, 3)]
    # each more token costs the same, but for one more pair in each of two layers
    assert (lengths[2] - lengths[1]) - (lengths[1] - lengths[0]) == 2 * (2 * 12)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_without_pads_the_count_is_that_of_torchs_own_counter(with_gradients: bool) -> None:
    """The formula of attention is run, whose products the counter sees; it works out the whole square of scores.

    So for each of the 6 rows and 2 layers the counter has target x target pairs where half of them, diagonal
    included, are of use.
    """
    task, model = learner.build(build(compose("train", SIZES)))
    source, target = torch.randint(4, 30, (6, 9)), torch.randint(4, 30, (6, 8))
    with FlopCounterMode(display=False) as counter:
        logits = model(source, torch.full((6,), 9), target, {})
        if with_gradients:
            logits.sum().backward()
    hidden_pairs = 6 * 2 * (8 * 8 - 8 * 9 // 2)
    counted = multiply_adds(WIDTHS, [9] * 6, [8] * 6) + hidden_pairs * 2 * 12
    assert len(task.target_vocabulary) == WIDTHS.target_symbols
    assert counter.get_total_flops() == (3 if with_gradients else 1) * 2 * counted


def test_a_step_is_three_forward_passes_of_two_operations_a_multiply_add() -> None:
    assert step_flops(WIDTHS, [7, 4], [5, 6]) == 6 * multiply_adds(WIDTHS, [7, 4], [5, 6])


def test_a_products_operations_are_those_of_all_its_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "PRODUCT_FLOPS", 1000)
    multiply, operations = product(3, 5, 7)
    with FlopCounterMode(display=False) as counter:
        multiply()
    assert counter.get_total_flops() == operations == 4 * (2 * 3 * 5 * 7)  # five would be more than a thousand


def test_the_share_is_the_useful_arithmetic_of_each_round_by_that_of_the_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two seconds a step, four a round of (18, 12) x (12, 20), and eight a square product."""
    now = 0.0
    made: list[tuple[int, int, int]] = []

    def spend(amount: float) -> Any:
        def work(*arguments: object) -> None:
            nonlocal now
            now += amount

        return work

    def fake(*shape: int) -> tuple[Any, int]:
        made.append((shape[0], shape[1], shape[2]))
        return (spend(4.0), 10**9) if shape[0] != shape[1] else (spend(8.0), shape[0] * 10**9)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(flops, "product", fake)
    monkeypatch.setattr(flops, "SQUARES", (16, 64, 32))
    monkeypatch.setattr(flops, "advance", lambda trainer, batches, steps: spend(2.0 * steps)())
    small = [*SIZES, "data.batch_size=3", "data.min_length=4", "data.max_length=4"]
    best, same, *wide = measure(2, 5, small, ["flops"]).rows
    assert [row.name for row in (same, *wide)] == ["useful arithmetic", *["wide useful arithmetic"] * 2]
    assert made[:4] == [(3 * 6, 12, 20), (16, 16, 16), (64, 64, 64), (32, 32, 32)]
    ours = step_flops(WIDTHS, [6] * 3, [5] * 3) / 2.0 / 1e9  # of 4 letters: 6 with both marks; BOS is not predicted
    for found, theirs in ((best, 64 / 8.0), (same, 1 / 4.0)):
        assert len(found.rounds) == 2
        assert found.rounds[0] == pytest.approx((ours, theirs))
    assert same.against == "(18, 12) x (12, 20)"
