"""Serial against parallel: what is counted and timed, and the rule."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import pytest
import torch

from lookback.bench import Bench
from lookback.claims import base, serial
from lookback.claims.base import HELD, IN_PART, NOT_HERE, Numbers
from lookback.claims.serial import Serial, in_turn, matched, threads

CLAIM = Serial()


class Place(NamedTuple):
    quick: bool = True


def test_threads_are_as_many_as_asked_for_and_come_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    found: list[int] = []

    def fail() -> None:
        found.append(torch.get_num_threads())
        raise KeyError

    with pytest.raises(KeyError), threads(before + 1):
        fail()
    assert [*found, torch.get_num_threads()] == [before + 1, before]


def test_both_models_have_as_many_weights() -> None:
    found = {name: sum(weights.numel() for weights in one.model.parameters()) for name, one in matched().items()}
    assert found["rnn"] == pytest.approx(found["transformer"], rel=0.01)


@pytest.mark.parametrize(("patience", "rounds"), [(60.0, 5), (0.0, 2)])
def test_rounds_end_early_where_they_take_long(
    monkeypatch: pytest.MonkeyPatch, patience: float, rounds: int
) -> None:
    monkeypatch.setattr(serial, "PATIENCE", patience)
    done: list[str] = []
    found = in_turn([lambda: done.append("a"), lambda: done.append("b")], 5)
    assert len(found) == rounds
    assert "".join(done) == "ab" * (rounds + 1)


def test_what_is_timed_is_told_by_round_and_the_gain_is_a_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def made(trainer: object, batch: object, steps: int, count: int) -> Callable[[], None]:
        given.append(steps)
        return lambda: None

    def timed(works: Sequence[object], rounds: int) -> list[tuple[float, ...]]:
        assert len(works) == 4
        return [(0.8, 0.5, 0.6, 0.3), (0.8, 0.4, 0.6, 0.2)]  # rnn on 1 and 2, transformer on 1 and 2

    monkeypatch.setattr(serial, "work", made)
    monkeypatch.setattr(serial, "in_turn", timed)
    monkeypatch.setattr(serial, "cores", lambda: 2)
    monkeypatch.setattr(serial, "QUICK_LENGTHS", (5, 10))
    found = CLAIM.measure(cast(Bench, Place()))
    assert given == [2, 2, 2, 2, 1, 1, 1, 1]
    assert found["rnn, length 5"]["milliseconds on one core"] == pytest.approx([400.0, 400.0])
    assert found["rnn, length 10"]["milliseconds on all cores"] == pytest.approx([500.0, 400.0])
    assert found["rnn, length 10"]["gain by all cores"] == pytest.approx([1.6, 2.0])
    assert found["transformer, length 5"]["gain by all cores"] == pytest.approx([2.0, 3.0])
    assert [plot.up for plot in CLAIM.plots(found)][2] == "times as fast on all cores"
    times = dict(CLAIM.plots(found)[1].lines["rnn, all cores"])
    assert list(times) == [5.0, 10.0]
    assert list(times.values()) == [pytest.approx([250.0, 200.0]), pytest.approx([500.0, 400.0])]


def test_an_rnn_takes_two_steps_a_symbol_and_a_transformer_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "cores", lambda: 1)
    monkeypatch.setattr(serial, "QUICK_LENGTHS", (3, 5))
    monkeypatch.setattr(serial, "QUICK_ROUNDS", 2)
    found = CLAIM.measure(cast(Bench, Place()))
    assert found["rnn, length 3"]["sequential steps"] == [5.0 + 4.0]  # BOS and EOS are read, and BOS or EOS written
    assert found["rnn, length 5"]["sequential steps"] == [7.0 + 6.0]
    assert found["transformer, length 5"]["sequential steps"] == [4.0]
    assert len(found["rnn, length 5"]["milliseconds on one core"]) == 2
    counted, gain, _ = CLAIM.checks(found)
    assert counted.holds
    assert not gain.holds
    assert gain.otherwise == "with one core there is nothing to gain"
    assert len(CLAIM.plots(found)) == 2
    assert [row[0] for row in CLAIM.tables(found)[0].rows] == [
        f"{name}, length {length}" for name in ("rnn", "transformer") for length in (3, 5)
    ]


def numbers(rnn_steps: tuple[float, float, float], rnn_gain: list[float], rnn_time: list[float]) -> Numbers:
    found: Numbers = {}
    for name, steps in (("rnn", rnn_steps), ("transformer", (4.0, 4.0, 4.0))):
        for length, count in zip((2, 3, 6), steps, strict=True):
            found[f"{name}, length {length}"] = {"sequential steps": [count]}
    for name, gain, time in (("rnn", rnn_gain, rnn_time), ("transformer", [1.5, 1.6, 1.7], [20.0, 21.0, 22.0])):
        row = found[f"{name}, length 6"]
        row |= {
            "milliseconds on one core": [1.0],
            "gain by all cores": [*gain],
            "milliseconds on all cores": [*time],
        }
    return found


SLOW = [30.0, 31.5, 32.0]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (numbers((7, 9, 15), [1.1, 1.2, 1.25], SLOW), HELD),
        (numbers((7, 9, 15), [1.6, 1.7, 1.85], SLOW), IN_PART),
        (numbers((7, 9, 15), [1.1, 1.2, 1.25], [19.0, 30.0, 25.0]), IN_PART),
        (numbers((7, 9, 16), [1.1, 1.2, 1.25], SLOW), NOT_HERE),
        (numbers((4, 4, 4), [1.1, 1.2, 1.25], SLOW), NOT_HERE),
    ],
)
def test_the_rule(found: Numbers, wanted: str) -> None:
    assert base.verdict(CLAIM.checks(found)) == wanted


def test_a_transformer_that_waits_for_symbols_does_not_hold() -> None:
    found = numbers((7, 9, 15), [1.1, 1.2, 1.25], SLOW)
    found["transformer, length 6"]["sequential steps"] = [5.0]
    assert base.verdict(CLAIM.checks(found)) == NOT_HERE
    assert CLAIM.checks(found)[0].found == "rnn 7 to 15, transformer 4 to 5"
