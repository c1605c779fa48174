"""Several heads: how differently they look, by pencil and paper; and the rule."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from conftest import train
from lookback import results
from lookback.bench import Bench, Runs
from lookback.claims import base, heads
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.heads import Heads, divergence

CLAIM = Heads(experiment="claim_heads")
ALL = torch.ones(1, 2, dtype=torch.bool)


def test_heads_that_look_alike_do_not_diverge_and_heads_with_no_key_in_common_diverge_by_1() -> None:
    alike = torch.tensor([[[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]]).expand(3, 2, 3)[None]
    apart = torch.eye(3)[None, :, None].expand(1, 3, 2, 3)
    assert divergence(alike, ALL) == pytest.approx(0.0, abs=1e-6)
    assert divergence(apart, ALL) == pytest.approx(1.0)
    assert np.isnan(divergence(alike[:, :1], ALL))


def test_two_heads_diverge_as_scipy_says_and_pads_do_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(1, 2, 5, 7, generator=generator).softmax(dim=-1)
    wanted = [jensenshannon(*weights[0, :, row].numpy(), base=2) ** 2 for row in range(5)]
    real = torch.tensor([[True, True, True, False, False]])
    assert divergence(weights, real) == pytest.approx(np.mean(wanted[:3]), rel=1e-4)
    assert divergence(weights, real) != pytest.approx(np.mean(wanted), rel=1e-2)


def numbers(trained: list[float], steps: list[float | None]) -> Numbers:
    return {
        "1": {"steps to 99 %": [500.0, 520.0, 510.0]},
        "8": {"steps to 99 %": steps, "cross, untrained": [0.1, 0.1, 0.1], "cross, trained": list(trained)},
    }


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (numbers([0.3, 0.4, 0.5], [300.0, 310.0, 320.0]), HELD),
        (numbers([0.3, 0.4, 0.5], [490.0, 540.0, 510.0]), IN_PART),
        (numbers([0.3, 0.4, 0.5], [300.0, 310.0, None]), IN_PART),
        (numbers([0.3, 0.09, 0.5], [300.0, 310.0, 320.0]), NOT_HERE),  # less than untrained in one run
    ],
)
def test_the_rule(found: Numbers, wanted: str) -> None:
    assert base.verdict(CLAIM.checks(found)) == wanted


def test_trained_heads_below_the_threshold_hold_in_part() -> None:
    found = numbers([0.095, 0.3, 0.4], [300.0, 310.0, 320.0])
    found["8"]["cross, untrained"] = [0.01, 0.01, 0.01]
    checks = CLAIM.checks(found)
    assert [check.holds for check in checks] == [False, True, True]
    assert base.verdict(checks) == IN_PART
    assert checks[0].found == "cross from 0.10 to 0.40"


class Place:
    """A bench with runs that are there."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_every_number_of_heads_is_measured_before_and_after_training(tmp_path: Path) -> None:
    runs: Runs = {}
    for count in (1, 3):
        folder = tmp_path / str(count)
        assert train(folder, f"model.num_heads={count}", "model.dropout=0.0", "train.steps=10") == 0
        runs[f"heads_{count}"] = [results.read(folder)]
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert list(found) == ["1", "3"]
    assert found["1"]["steps to 99 %"] == [None]
    assert not [measured for measured in found["1"] if measured.endswith("trained")]
    for kind in heads.KINDS:
        [before], [after] = found["3"][f"{kind}, untrained"], found["3"][f"{kind}, trained"]
        assert before is not None
        assert after is not None
        assert 0 < before < 1
        assert before != after
    [left, right] = CLAIM.plots(found)
    assert list(left.lines["steps"]) == ["1", "3"]
    assert set(right.lines) == {f"{kind}, {when}" for kind in heads.KINDS for when in ("untrained", "trained")}
