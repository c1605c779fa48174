"""One vector: the span by pencil and paper; what is measured; and the rule."""

import math
from pathlib import Path
from typing import cast

import pytest

from conftest import write_run
from lookback import results
from lookback.bench import Bench, Runs
from lookback.claims import base
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.one_vector import OneVector, span

CLAIM = OneVector(experiment="claim_one_vector")


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ({1: 1.0, 2: 0.75, 4: 0.25}, 3.0),  # half way from 2 to 4
        ({2: 0.9, 1: 1.0, 3: 0.4}, 2.8),
        ({1: 0.25}, 2 / 3),  # from 1 at length 0
        ({1: 1.0, 3: 0.5, 7: 0.5}, 7.0),  # never below
        ({1: 0.4, 2: 0.9}, 5 / 6),  # the first fall counts
    ],
)
def test_the_span_is_where_exact_match_first_falls_below_a_half(scores: dict[int, float], wanted: float) -> None:
    assert span(scores) == pytest.approx(wanted)


def numbers(spans: dict[int, list[float]], crammed: float = 0.05) -> Numbers:
    """4 bits a letter, so that 8 letters are 32 bits, which is 2 for each of 16 numbers."""
    return {
        f"{width}": {
            "span": [*found],
            "bits a number": [4 * value / width for value in found],
            "bits a symbol": [4.0, 4.0],
            "exact match at 7": [0.4, 0.6],
            "exact match at 8": [0.0, crammed] if width == 16 else [0.3, 0.3],
        }
        for width, found in spans.items()
    }


DOUBLE = {16: [2.0, 2.2], 32: [4.0, 4.4], 64: [8.0, 8.8]}
ROOT = {16: [2.0, 2.0], 32: [2.8, 2.8], 64: [4.0, 4.0]}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (numbers(DOUBLE), HELD),
        (numbers(ROOT), IN_PART),
        (numbers({**DOUBLE, 64: [8.0, 4.3]}), NOT_HERE),  # the second seed does not grow
        (numbers(DOUBLE, crammed=0.06), NOT_HERE),
    ],
)
def test_the_rule(found: Numbers, wanted: str) -> None:
    assert base.verdict(CLAIM.checks(found)) == wanted


def test_the_checks_tell_gains_the_worst_string_and_the_exponent() -> None:
    grows, never, law = CLAIM.checks(numbers(ROOT, crammed=0.04))
    assert grows.found == (
        "2.0 of d = 16, 2.8 of d = 32, 4.0 of d = 64; least gain 0.8 from 16 to 32, 1.2 from 32 to 64"
    )
    assert never.found == "at most 0.040 at length 8, d = 16"
    assert law.found.startswith("span ~ d^0.50, from 0.4")


def test_without_a_string_that_is_much_too_long_the_claim_is_not_held() -> None:
    found = {width: row for width, row in numbers(DOUBLE).items() if width != "16"}
    checks = CLAIM.checks({**found, "128": {**found["64"], "span": [16.0, 17.6]}})
    assert [check.holds for check in checks] == [True, False, True]
    assert checks[1].found == "no string was so long"


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_spans_and_bits_are_measured_by_width_within_the_trained_lengths(tmp_path: Path) -> None:
    runs: Runs = {}
    for width, scores in ((6, {2: 1.0, 4: 0.25, 8: 0.0, 10: 0.75}), (12, {2: 1.0, 4: 1.0, 8: 0.0, 10: 0.75})):
        overrides = ["model=rnn", "model.cell=gru", f"model.d_model={width}", "evaluate.lengths=[2,4,8,10]"]
        folders = [tmp_path / f"{width}/{seed}" for seed in (0, 1)]
        write_run(folders[0], *overrides, exact_match=scores)
        write_run(folders[1], *overrides, seed=1, status="failed", reason="NonFiniteLossError: step 3")
        runs[f"state_{width}"] = [results.read(folder) for folder in folders]
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert list(found) == ["6", "12"]
    assert found["6"]["exact match at 4"] == [0.25, 0.0]
    assert "exact match at 10" not in found["6"]
    assert found["6"]["span"] == pytest.approx([2 + 4 / 3, 1.0])
    assert found["12"]["span"] == pytest.approx([6.0, 1.0])
    assert found["12"]["bits a number"] == pytest.approx([math.log2(26) / 2, math.log2(26) / 12])
    spans, lengths = CLAIM.tables(found)
    assert spans.headings == ["d", "span", "bits a number"]
    assert [row[0] for row in lengths.rows] == ["2", "4", "8"]
    left, right = CLAIM.plots(found)
    assert left.lines["d = 12"] == {2.0: [1.0, 0.0], 4.0: [1.0, 0.0], 8.0: [0.0, 0.0]}
    assert right.lines["1 bit a number"] == {6.0: [6 / math.log2(26)], 12.0: [12 / math.log2(26)]}
