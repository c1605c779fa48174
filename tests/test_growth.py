"""Exponents of laws whose exponents are known, and bytes that are counted by pencil."""

import math
import os
from typing import Any

import numpy as np
import pytest
import torch

from lookback import growth
from lookback.benchmark import measure
from lookback.growth import exponent, peak_bytes
from lookback.train import Trainer

SMALL = ["model.d_model=12", "model.num_heads=3", "model.d_ff=20"]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, -0.5])
def test_the_exponent_of_a_power_law_is_its_power_with_no_width(power: float) -> None:
    points = [(float(x), 3.0 * x**power) for x in (50, 100, 200, 400)]
    assert exponent(points) == pytest.approx((power, power, power), abs=1e-6)


def test_the_interval_is_that_of_the_textbook() -> None:
    """Slope and standard error by the normal equations; Student's t of 3 degrees of freedom at 97.5 % is 3.182."""
    sizes, values = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([1.0, 3.0, 4.0, 9.0, 15.0])
    x, y = np.log(sizes), np.log(values)
    across = ((x - x.mean()) ** 2).sum()
    slope = ((x - x.mean()) * y).sum() / across
    left = y - y.mean() - slope * (x - x.mean())
    error = math.sqrt((left**2).sum() / 3 / across)
    expected = (slope, slope - 3.18245 * error, slope + 3.18245 * error)
    assert exponent(list(zip(sizes, values, strict=True))) == pytest.approx(expected, rel=1e-5)


def test_the_peak_is_what_is_held_at_once_beyond_what_was_there(capfd: pytest.CaptureFixture[str]) -> None:
    kept = torch.ones(1000)

    def work() -> None:
        first = torch.ones(3000)  # 12,000 bytes
        del first
        second, third = torch.ones(1000), torch.ones(2500)  # 14,000 together
        del second, third
        torch.ones(500)

    peak = peak_bytes(work)
    assert 14_000 <= peak < 14_000 + 3 * 64  # torch rounds up to its alignment
    assert len(kept) == 1000
    assert capfd.readouterr().err == ""


def test_stderr_is_back_after_work_that_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        peak_bytes(lambda: 1 / 0)
    torch.ones(1)
    os.write(2, b"here\n")
    assert capfd.readouterr().err == "here\n"


def test_every_figure_is_fitted_on_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LENGTHS", (12, 24, 48, 96))
    figures = {figure.name: figure for figure in measure(1, 1, SMALL, ["growth"]).figures}
    names = ("training step", "decoding", "fused attention", "attention by the formula")
    wanted = [f"{name}, {what}" for name in names for what in ("time", "memory")]
    assert [name.removesuffix(" of a token") for name in figures] == wanted
    for figure in figures.values():
        assert [x for x, _ in figure.points] == [12, 24, 48, 96]
        assert (figure.value, figure.low, figure.high) == exponent(figure.points)
    # the formula keeps its square of scores; 4 strings, 3 heads, 98 places with marks
    assert figures["attention by the formula, memory"].points[-1][1] > 2 * 4 * 3 * 98 * 98 * 4
    assert figures["fused attention, memory"].points[-1][1] < 2 * 4 * 3 * 98 * 98 * 4


def test_times_are_medians_and_those_of_decoding_are_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoding of n tokens takes n^2 seconds, a training step n; the second round of three is disturbed."""
    now, rounds = 0.0, {"greedy": 0, "advance": 0}

    def spend(name: str, power: float) -> Any:
        def work(*arguments: Any) -> None:
            nonlocal now
            length = arguments[1].shape[1] - 2 if name == "greedy" else arguments[1](0).source.shape[1] - 2
            rounds[name] += 1
            disturbed = rounds[name] in (7, 8)  # after the untimed round of three lengths and the first timed one
            now += 1000.0 if disturbed else float(length) ** power

        return work

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(growth, "LENGTHS", (4, 8, 16))
    monkeypatch.setattr(growth, "peak_bytes", lambda work: 1)
    monkeypatch.setattr(growth, "greedy", spend("greedy", 2.0))
    monkeypatch.setattr(Trainer, "advance", spend("advance", 1.0))
    monkeypatch.setattr(growth, "_attention", lambda work, fused: lambda batch: spend_one)

    def spend_one() -> None:
        nonlocal now
        now += 1.0

    figures = {figure.name: figure for figure in measure(3, 1, SMALL, ["growth"]).figures}
    assert figures["training step, time"].points == [(4.0, 4.0), (8.0, 8.0), (16.0, 16.0)]
    assert figures["decoding, time of a token"].points == [(4.0, 4.0), (8.0, 8.0), (16.0, 16.0)]
