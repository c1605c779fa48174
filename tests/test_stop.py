"""Signals are remembered, not obeyed at once."""

import os
import signal
import threading
from pathlib import Path

import pytest

from lookback.stop import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_remembered_and_the_handler_given_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stop() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert stop.signal == number
    assert signal.getsignal(number) == before


def test_a_second_signal_ends_at_once() -> None:
    with Stop():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_in_another_thread_it_never_stops_and_never_fails() -> None:
    seen: list[bool] = []

    def work() -> None:
        with Stop() as stop:
            seen.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_flag_file_stops_all_that_watch_it_as_sigterm_would(tmp_path: Path) -> None:
    flag = tmp_path / "stop"
    one, two, deaf = Stop(flag), Stop(flag), Stop()
    assert not one()
    assert not two()
    flag.touch()
    assert one()
    assert two()
    assert (one.signal, two.signal) == (signal.SIGTERM, signal.SIGTERM)
    assert not deaf()
    flag.unlink()
    assert one()  # once told to stop, it stays so


def test_a_flag_reaches_another_thread(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    seen: list[bool] = []

    def work() -> None:
        with Stop(tmp_path / "stop") as stop:
            seen.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_signal_counts_more_than_the_flag(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with Stop(tmp_path / "stop") as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert stop.signal == signal.SIGINT


def test_after_a_flag_one_signal_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with Stop(tmp_path / "stop") as stop:
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
