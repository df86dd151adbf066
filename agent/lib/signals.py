"""Signals as data: a handler may run anywhere in the main thread, so it only notes what came."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from types import FrameType


class SignalWaker:
    """Wakes the main thread for these signals, in place of their handlers."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._came: list[int] = []
        # A pipe and not an Event: a handler that interrupts the main thread inside Event.wait would wait for itself.
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in numbers:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> list[int]:
        """Return the signals received; wait for at most this many seconds."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if poll.poll(max(seconds, 0.0) * 1000):
            os.read(self._out, 4096)
        came, self._came = self._came, []
        return came

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
