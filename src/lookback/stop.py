"""Ending a run politely."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any


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
