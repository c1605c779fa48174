"""The bottleneck: what is measured, and the rule, on numbers by hand."""

from pathlib import Path
from typing import cast

import pytest

from conftest import write_run
from lookback import results
from lookback.bench import Bench, Runs
from lookback.claims import base
from lookback.claims.base import HELD, NOT_HERE, Numbers
from lookback.claims.bottleneck import Bottleneck

CLAIM = Bottleneck(experiment="claim_bottleneck")


def numbers(plain: list[float], looks: list[float]) -> Numbers:
    at = [f"exact match at {length}" for length in (1, 5, 20)]
    return {
        "rnn": dict(zip(at, [[1.0, 1.0], [0.9, 0.8], list(plain)], strict=True)),
        "transformer": dict(zip(at, [[1.0, 1.0], list(looks), [1.0, 1.0]], strict=True)),
    }


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (numbers([0.3, 0.3], [1.0, 0.95]), HELD),
        (numbers([0.3, 0.31], [1.0, 1.0]), NOT_HERE),  # falls by 0.49 in the second seed
        (numbers([0.3, 0.3], [1.0, 0.94]), NOT_HERE),
    ],
)
def test_the_rule(found: Numbers, wanted: str) -> None:
    assert base.verdict(CLAIM.checks(found)) == wanted


def test_the_checks_tell_the_least_fall_and_the_worst_score() -> None:
    falls, right = CLAIM.checks(numbers([0.3, 0.1], [1.0, 0.5]))
    assert falls.found == "0.85 against 0.20, least fall 0.60"
    assert right.found == "transformer 0.500 at its worst"


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_exact_match_is_told_by_length_within_the_trained_range(tmp_path: Path) -> None:
    runs: Runs = {}
    for name, score in (("rnn", 0.25), ("transformer", 0.75)):
        found = []
        for seed in (0, 1):
            folder = write_run(tmp_path / name / str(seed), seed=seed, exact_match={4: 1.0, 8: score, 10: 0.5})
            found.append(results.read(folder, name))
        runs[name] = found
    assert CLAIM.measure(cast(Bench, Place(runs))) == {
        "rnn": {"exact match at 4": [1.0, 1.0], "exact match at 8": [0.25, 0.25]},
        "transformer": {"exact match at 4": [1.0, 1.0], "exact match at 8": [0.75, 0.75]},
    }
    [plot] = CLAIM.plots(CLAIM.measure(cast(Bench, Place(runs))))
    assert plot.lines["rnn"] == {4.0: [1.0, 1.0], 8.0: [0.25, 0.25]}
