"""The division by sqrt(d_k): what is measured, against formulas and autograd; and the rule, on numbers by hand."""

import math
from pathlib import Path
from typing import cast

import pytest
import torch

from conftest import write_run
from lookback import results
from lookback.attention import attend
from lookback.bench import Bench, Runs
from lookback.claims import base, scale
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.scale import Scale, entropy, gradient, untrained

CLAIM = Scale(experiment="claim_scale", widths=[4], keys=7, queries=500, draws=3)


def test_entropy_is_1_where_all_keys_are_looked_at_alike_and_0_at_one() -> None:
    rows = torch.tensor([[0.2] * 5, [0.5, 0.5, 0, 0, 0], [0, 0, 1.0, 0, 0]])
    assert entropy(rows).tolist() == pytest.approx([1.0, math.log(2) / math.log(5), 0.0])


def test_the_gradient_is_the_norm_of_the_jacobian_that_autograd_finds() -> None:
    scores = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    wanted = [
        torch.autograd.functional.jacobian(lambda row: row.softmax(dim=-1), row).norm().item()  # type: ignore[no-untyped-call]
        for row in scores
    ]
    assert gradient(scores.softmax(dim=-1)).tolist() == pytest.approx(wanted)
    two = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert gradient(two).tolist() == [0.5, 0.0]  # each of the four entries is 1/4, up to its sign


def test_the_variance_of_products_of_standard_normal_numbers_is_the_width_and_1_once_divided() -> None:
    for width in (4, 64):
        assert untrained(width, 2000, 7, False, seed=0)[scale.VARIANCE] == pytest.approx(width, rel=0.1)
        assert untrained(width, 2000, 7, True, seed=0)[scale.VARIANCE] == pytest.approx(1.0, rel=0.1)


def test_what_is_measured_divided_is_what_the_formula_of_attention_does() -> None:
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(40, 1, 1, 6, generator=generator, dtype=torch.float64)
    key = torch.randn(40, 1, 7, 6, generator=generator, dtype=torch.float64)
    for divided in (True, False):
        _, weights = attend(query if divided else query * math.sqrt(6), key, key)
        rows = weights.flatten(0, 2)  # (row, key)
        sizes = (torch.diag_embed(rows) - rows[:, :, None] * rows[:, None]).flatten(1).norm(dim=1)
        found = untrained(6, 40, 7, divided, seed=3)
        assert found[scale.ENTROPY] == pytest.approx(float(-(rows * rows.log()).sum(1).mean()) / math.log(7))
        assert found[scale.MEAN] == pytest.approx(float(sizes.mean()))
        assert found[scale.MEDIAN] == pytest.approx(float(sizes.median()))


def numbers(
    *, variance: float = 16.5, entropy: float = 0.08, median: float = 0.01, mean: float = 0.015, slow: bool = True
) -> Numbers:
    def row(*values: float) -> dict[str, base.Values]:
        names = (scale.VARIANCE, scale.ENTROPY, scale.MEDIAN, scale.MEAN)
        return {name: [value, value] for name, value in zip(names, values, strict=True)}

    fast: dict[str, base.Values] = {scale.STEPS: [200.0, 210.0], scale.MATCH: [1.0, 1.0]}
    stuck: dict[str, base.Values] = {scale.STEPS: [None, None], scale.MATCH: [0.0, 0.5]}
    return {
        "4, divided": row(1.05, 0.8, 0.2, 0.25),
        "4, not divided": row(4.0, 0.6, 0.15, 0.2),
        "16, divided": {**row(0.95, 0.7, 0.2, 0.25), **fast},
        "16, not divided": {**row(variance, entropy, median, mean), **(stuck if slow else fast)},
    }


@pytest.mark.parametrize(
    ("found", "wanted", "fails"),
    [
        (numbers(), HELD, []),
        (numbers(variance=18.0), NOT_HERE, [0]),  # 12.5 % off
        (numbers(entropy=0.11), NOT_HERE, [1]),
        (numbers(median=0.03), NOT_HERE, [2]),  # 0.15 of 0.2
        (numbers(mean=0.05), IN_PART, [3]),  # 0.2 of 0.25
        (numbers(slow=False), IN_PART, [4, 5]),
    ],
)
def test_the_rule(found: Numbers, wanted: str, fails: list[int]) -> None:
    checks = CLAIM.checks(found)
    assert [number for number, check in enumerate(checks) if not check.holds] == fails
    assert base.verdict(checks) == wanted


def test_entropy_that_falls_even_with_division_breaks_the_rule() -> None:
    found = numbers()
    found["4, divided"][scale.ENTROPY] = [0.8, 0.49]
    assert not CLAIM.checks(found)[1].holds


def test_the_widest_that_was_trained_is_judged() -> None:
    found = numbers()
    for way in ("divided", "not divided"):
        found[f"4, {way}"] |= {scale.STEPS: [200.0, 210.0], scale.MATCH: [1.0, 1.0]}
    assert base.verdict(CLAIM.checks(found)) == HELD


def test_the_checks_tell_numbers() -> None:
    checks = CLAIM.checks(numbers(mean=0.05))
    assert checks[0].found == "farthest off by 5.0%"
    assert checks[3].found == "at most 0.2 of it"
    assert checks[4].found.startswith("205")
    assert checks[5].found == "at best 0.50, against 1.000±.000 with division"


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_widths_have_a_row_each_way_and_those_that_were_trained_have_scores(tmp_path: Path) -> None:
    runs: Runs = {}
    for name, divided, score in (("plain", True, 1.0), ("undivided", False, 0.25)):
        sizes = ("model.d_model=48", "model.num_heads=3", f"model.scale={str(divided).lower()}")
        folder = write_run(
            tmp_path / name, *sizes, exact_match={4: 1.0, 8: score, 10: 0.5}, validations=[(20, score, 1.0)]
        )
        runs[name] = [results.read(folder, name)]
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert list(found) == ["4, divided", "4, not divided", "16, divided", "16, not divided"]
    assert found["16, divided"][scale.STEPS] == [20.0]
    assert found["16, not divided"][scale.STEPS] == [None]
    assert found["16, not divided"][scale.MATCH] == [0.25]
    assert len(set(found["4, divided"][scale.VARIANCE])) == 3
    assert scale.MATCH not in found["4, divided"]
    entropies, gradients, bars = CLAIM.plots(found)
    assert list(entropies.lines["divided"]) == list(gradients.lines["not divided"]) == [4, 16]
    assert bars.lines == {"divided": {"16": [1.0]}, "not divided": {"16": [0.25]}}
