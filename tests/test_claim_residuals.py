"""Residual connections: the gradient by pencil and paper and by differences; and the rule, on numbers by hand."""

from pathlib import Path
from typing import cast

import pytest
import torch

from conftest import write_run
from lookback import config, launcher, learner, results
from lookback.bench import Bench, Runs
from lookback.claims import base, residuals
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.residuals import BARE, GRADIENT, MATCH, STEPS, Residuals, source_gradient, untrained
from lookback.data import train_batch
from lookback.metrics import sequence_loss
from lookback.models.transformer import Transformer

CLAIM = Residuals(experiment="claim_residuals", draws=3)


def test_the_gradient_is_what_a_small_step_against_it_gains() -> None:
    built = config.build(launcher.compose("train", ["experiment=smoke"]))
    task, model = learner.build(built)
    assert isinstance(model, Transformer)
    model.double()
    batch = train_batch(task, built.data, 0, 0)

    def loss() -> torch.Tensor:
        return sequence_loss(model(batch.source, batch.source_lengths, batch.decoder_input).double(), batch.labels)

    size = source_gradient(model, batch)
    loss().backward()  # type: ignore[no-untyped-call]
    weight = model.source_embedding.weight
    assert weight.grad is not None
    step = 1e-2
    with torch.no_grad():
        direction = weight.grad / weight.grad.norm()
        weight += step * direction
        above = loss()
        weight -= 2 * step * direction
        below = loss()
    assert size == pytest.approx(float(above - below) / (2 * step), rel=1e-2)


def numbers(
    with_: float = 0.1, without: float = 0.009, right: float = 0.95, failed: float = 0.5, steps: float | None = None
) -> Numbers:
    def row(gradients: list[float], reached: list[float | None], match: list[float]) -> dict[str, base.Values]:
        return {GRADIENT: list(gradients), BARE: [1.0, 1.0], STEPS: reached, MATCH: list(match)}

    return {
        "12, with": row([2.0, with_], [400.0, 450.0], [1.0, right]),
        "12, without": row([0.001, without], [None, None], [0.0, failed]),
        "2, with": row([1.0, 1.0], [200.0, 210.0], [1.0, 1.0]),
        "2, without": row([0.1, 0.1], [steps, steps], [0.75, 0.75]),
    }


@pytest.mark.parametrize(
    ("found", "wanted", "fails"),
    [
        (numbers(), HELD, []),
        (numbers(steps=205.0), IN_PART, [3]),
        (numbers(with_=0.09), IN_PART, [0]),
        (numbers(without=0.011), IN_PART, [0]),  # a tenth of 0.1 is 0.01
        (numbers(right=0.94), NOT_HERE, [1]),
        (numbers(failed=0.51), NOT_HERE, [2]),
    ],
)
def test_the_rule(found: Numbers, wanted: str, fails: list[int]) -> None:
    checks = CLAIM.checks(found)
    assert [number for number, check in enumerate(checks) if not check.holds] == fails
    assert base.verdict(checks) == wanted


def test_the_checks_tell_shares_and_the_worst() -> None:
    gradient, right, failed, _ = CLAIM.checks(numbers())
    assert gradient.found == "1.1 with, 0.05 without"  # (2 + 0.1) / 2, and (0.01 + 0.09) / 2
    assert right.found == "0.95 at its worst"
    assert failed.found == "0.50 at its best"


class Place:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def train(self) -> Runs:
        return self.runs


def test_every_depth_is_measured_with_and_without(tmp_path: Path) -> None:
    runs: Runs = {}
    for layers, residual, score in ((1, True, 1.0), (3, True, 0.75), (1, False, 0.5), (3, False, 0.25)):
        name = f"{layers}{residual}"
        sizes = (f"model.num_layers={layers}", f"model.residual={str(residual).lower()}", "model.d_model=12")
        runs[name] = []
        for seed in (0, 1):
            folder = write_run(
                tmp_path / name / str(seed),
                *sizes,
                seed=seed,
                exact_match={4: 1.0, 8: score},
                validations=[(10, 0.5, 1.0), (20, score, 2.0)],
            )
            runs[name].append(results.read(folder, name))
    found = CLAIM.measure(cast(Bench, Place(runs)))
    assert list(found) == ["1, with", "3, with", "1, without", "3, without"]
    assert [row[MATCH] for row in found.values()] == [[1.0, 1.0], [0.75, 0.75], [0.5, 0.5], [0.25, 0.25]]
    assert found["1, with"][STEPS] == [20.0, 20.0]
    assert found["3, without"][STEPS] == [None, None]
    raw = runs["3True"][0].raw
    built = config.build(runs["3True"][1].raw)
    task, model = learner.build(built)
    assert found["3, with"][GRADIENT][1] == source_gradient(model.double(), train_batch(task, built.data, 1, 0))
    assert found["3, with"][BARE][0] == untrained({**raw, "model": {**raw["model"], "norm": "none"}})
    assert raw["model"]["norm"] == "pre"
    assert len({value for row in found.values() for measure in (GRADIENT, BARE) for value in row[measure]}) == 24
    sizes_, bare, matches = CLAIM.plots(found)
    assert bare.lines["without residual connections"][3.0] == found["3, without"][BARE]  # type: ignore[index]
    assert sizes_.lines["with residual connections"][1.0] == found["1, with"][GRADIENT]  # type: ignore[index]
    assert matches.lines["without residual connections"] == {1.0: [0.5, 0.5], 3.0: [0.25, 0.25]}
    assert list(residuals.line(found, MATCH, True)) == [1, 3]
