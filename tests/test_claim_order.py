"""Order: what a permutation changes, by hand and for every encoding; and the rule."""

from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from conftest import write_run
from lookback import launcher, results
from lookback.bench import Bench, Runs
from lookback.claims import base, order
from lookback.claims.base import HELD, NOT_HERE, Numbers
from lookback.claims.order import Order, moved, permuted_difference
from lookback.models.base import Memory, Seq2Seq
from lookback.models.rnn import Rnn

CLAIM = Order(experiment="claim_order")


class ByHand(Rnn):
    """Its states are ids, and as much more at a place as is said."""

    def __init__(self, more: list[float]) -> None:
        super().__init__(
            9,
            9,
            d_model=2,
            num_layers=1,
            cell="gru",
            bidirectional=False,
            dropout=0.0,
            tied=False,
            source_order="forward",
        )
        self.more = torch.tensor(more)

    def encode(self, source: Tensor, lengths: Tensor, maps: object = None) -> Memory:
        return Memory((source + self.more)[..., None].expand(-1, -1, 2), lengths)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.0], 0.0),
        ([5.0, 1.0, 1.0, 1.0, 7.0], 0.0),  # the marks stay where they are
        ([0.0, 1.0, 2.0, 4.0, 0.0], 3.0),  # the first symbol gets 4, which had 1
        ([0.0, 4.0, 1.0, 2.0, 0.0], 3.0),
    ],
)
def test_states_that_move_along_with_their_symbols_do_not_count(more: list[float], wanted: float) -> None:
    source, lengths = torch.tensor([[1, 4, 5, 6, 2], [1, 7, 7, 8, 2]]), torch.tensor([5, 5])
    found = permuted_difference(cast(Seq2Seq, ByHand(more)), source, lengths, torch.tensor([2, 0, 1]))
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("choice", launcher.choices("model/positions"))
def test_only_without_positions_a_permutation_is_not_noticed(tmp_path: Path, choice: str) -> None:
    for seed in (0, 3):
        folder = write_run(tmp_path / str(seed), f"model/positions={choice}", "model.d_model=32", seed=seed)
        found = moved(results.read(folder))
        assert (found <= order.ROUNDING) if choice == "none" else (found >= order.SEEN)


def numbers(
    none: tuple[float, float] = (1e-6, 0.05), rotary: tuple[float, float] = (0.01, 0.5), longer: float = 1.0
) -> Numbers:
    """Of each: what a permutation changes, and exact match at the longest trained length, in the second seed."""
    return {
        name: {
            "change of a state": [better[0], found[0]],
            "longest trained length": [7.0, 7.0],
            "exact match at 3": [0.3, 0.3],
            "exact match at 7": [better[1], found[1]],
            "exact match at 9": [longer, longer],
        }
        for name, better, found in (("none", (0.0, 0.0), none), ("rotary", (2.0, 1.0), rotary))
    }


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (numbers(), [True, True, True, True]),
        (numbers(longer=0.0), [True, True, True, True]),  # nothing is said of lengths that were not trained
        (numbers(none=(2e-4, 0.05)), [False, True, True, True]),
        (numbers(rotary=(0.009, 0.5)), [True, False, True, True]),
        (numbers(none=(0.0, 0.06)), [True, True, False, True]),
        (numbers(rotary=(0.01, 0.49)), [True, True, True, False]),
    ],
)
def test_the_rule(found: Numbers, held: list[bool]) -> None:
    checks = CLAIM.checks(found)
    assert [check.holds for check in checks] == held
    assert base.verdict(checks) == (HELD if all(held) else NOT_HERE)
    assert "exact match at 7, the longest trained" in checks[2].rule


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_every_tested_length_is_told_and_the_trained_ones_are_shaded(tmp_path: Path) -> None:
    runs: Runs = {}
    for name, score in (("none", 0.0), ("alibi", 0.75)):
        overrides = [f"model/positions={name}", "evaluate.lengths=[4,8,10]"]
        folders = [tmp_path / f"{name}{seed}" for seed in (0, 1)]
        write_run(folders[0], *overrides, exact_match={4: 1.0, 8: score, 10: 0.5})
        write_run(folders[1], *overrides, seed=1, status="failed", reason="NonFiniteLossError: step 3")
        runs[name] = [results.read(folder) for folder in folders]
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert list(found) == ["none", "alibi"]
    assert found["alibi"]["exact match at 8"] == [0.75, 0.0]
    assert found["alibi"]["exact match at 10"] == [0.5, 0.0]
    changes, lines = CLAIM.plots(found)
    assert list(changes.lines["random weights"]) == ["none", "alibi"]
    assert lines.shaded == (1.0, 8.0)
    assert lines.lines["alibi"] == {4.0: [1.0, 0.0], 8.0: [0.75, 0.0], 10.0: [0.5, 0.0]}
    [sheet] = CLAIM.tables(found)
    assert "longest trained length" not in sheet.headings
