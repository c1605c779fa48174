"""A look-up: the limit by pencil and paper, a trained head against what alignment says; and the rule."""

import math
from pathlib import Path
from typing import cast

import pytest

from conftest import write_run
from lookback import experiment, results
from lookback.alignment import Head, clearest, measure, right_cells
from lookback.bench import Bench, Runs
from lookback.claims import base, lookup
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers, Values
from lookback.claims.lookup import Lookup, right_weight, sharpened, soft_lookup
from lookback.evaluate import validation_batch

CLAIM = Lookup(experiment="claim_lookup")


@pytest.mark.parametrize(
    ("factor", "cells", "wanted"),
    [(0.0, 5, 0.2), (math.log(4), 5, 0.5), (math.log(2), 3, 0.5), (math.log(9), 4, 0.75)],
)
def test_the_weight_of_one_score_among_zeros(factor: float, cells: int, wanted: float) -> None:
    assert right_weight(factor, cells) == pytest.approx(wanted)


def test_attention_on_a_table_follows_the_formula_and_ends_at_the_value() -> None:
    found = {factor: soft_lookup(factor, 3) for factor in (0.0, math.log(19), 8.0, 64.0)}
    weights = [weight for weight, _ in found.values()]
    assert weights == pytest.approx([1 / lookup.CELLS, 0.5, right_weight(8.0, lookup.CELLS), 1.0], abs=1e-6)
    errors = [error for _, error in found.values()]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] == pytest.approx(0.0, abs=1e-6)
    assert soft_lookup(1.0, 4)[1] != soft_lookup(1.0, 3)[1]


def test_a_trained_head_has_its_own_weight_at_1_and_its_largest_cell_in_the_limit(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "FACTORS", (1.0, 1e6))
    task, model = experiment.load(tiny_run)
    batch = validation_batch(task, [7] * lookup.PROBES)
    scores = measure(model, batch, right_cells(task, batch))
    for place, number in (("cross/layer0", 2), ("cross/layer1", 1)):
        found = sharpened(model, task, Head(place, number, scores[place][number]), 7)
        assert found[1.0] == pytest.approx(scores[place][number].weight, rel=1e-4)
        assert found[1e6] == pytest.approx(scores[place][number].largest, abs=1e-3)


def numbers(
    off: float = 0.0, error: float = 0.0, largest: Values | None = None, weight: Values | None = None
) -> Numbers:
    table: dict[str, Values] = {}
    head: dict[str, Values] = {}
    for factor in lookup.FACTORS:
        table[f"by the formula, times {factor:g}"] = [0.25]
        table[f"weight, times {factor:g}"] = [0.25, 0.25 - off]
        table[f"off the value, times {factor:g}"] = [error, 0.0] if factor == 64 else [9.0, 9.0]
        head[f"weight, times {factor:g}"] = [0.5, 0.5]
    head["weight on the right cell"] = [0.5, 0.7] if weight is None else weight
    head["share of rows where it is largest"] = [0.9, 0.95] if largest is None else largest
    return {"table": table, "trained head": head}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (numbers(), HELD),
        (numbers(off=2e-5), NOT_HERE),
        (numbers(error=0.002), NOT_HERE),
        (numbers(largest=[0.95, 0.89]), NOT_HERE),
        (numbers(largest=[0.95, None]), NOT_HERE),
        (numbers(weight=[0.7, 0.49]), IN_PART),
        (numbers(weight=[0.7, None]), IN_PART),
        (numbers(weight=[None, None], largest=[None, None]), NOT_HERE),
    ],
)
def test_the_rule(found: Numbers, wanted: str) -> None:
    assert base.verdict(CLAIM.checks(found)) == wanted


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_the_clearest_head_is_measured_and_a_run_that_diverged_has_none(tiny_run: Path, tmp_path: Path) -> None:
    diverged = write_run(tmp_path / "run", seed=1, status="failed", reason="NonFiniteLossError: step 3")
    runs = {"heads_3": [results.read(tiny_run), results.read(diverged)]}
    found = CLAIM.measure(cast(Bench, Place(runs)))
    task, model = experiment.load(tiny_run)
    batch = validation_batch(task, [8] * lookup.BATCH)
    head = clearest(measure(model, batch, right_cells(task, batch)))
    assert head is not None
    assert found["trained head"]["weight on the right cell"] == [pytest.approx(head.score.weight), None]
    assert found["trained head"]["share of rows where it is largest"] == [head.score.largest, None]
    assert found["table"]["off the value, times 1"] == [soft_lookup(1.0, seed)[1] for seed in (0, 1)]
    left, right = CLAIM.plots(found)
    assert set(left.lines) == {"table", "trained head"}
    assert [len(values) for values in left.lines["trained head"].values()] == [1] * len(lookup.FACTORS)
    assert list(right.lines["table"])[:3] == [0.125, 0.25, 0.5]
    assert len(CLAIM.tables(found)[0].rows) == len(lookup.FACTORS)
