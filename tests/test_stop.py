"""Signals are remembered, not obeyed at once."""

import os
import signal
import threading

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
