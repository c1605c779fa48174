"""Ending a run politely."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = 128  # an exit code is this and the number of the signal that ended the run
LOOK_EVERY = 0.2  # seconds


class Stop:
    """Remembers Ctrl-C, SIGTERM and a closed terminal until the running step is done; a second one ends at once.

    Args:
        flag: a file; where it exists, all that watch it stop, on other machines too.
    """

    DEFAULT = signal.SIGTERM  # what a flag stands for

    def __init__(self, flag: Path | None = None) -> None:
        self.signal = 0
        self._flag = flag
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether to stop."""
        if self._flag is not None and not self.signal and self._flag.exists():
            self.signal = self.DEFAULT
        return self.signal != 0

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():  # no other thread may listen to signals
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def passed_on(stop: Stop, flag: Path) -> Iterator[None]:
    """Inside, a stop of this process becomes a file that says stop to others."""
    done = threading.Event()

    def follow() -> None:
        while not done.wait(LOOK_EVERY):
            if stop():
                flag.touch()
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
