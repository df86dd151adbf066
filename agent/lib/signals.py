"""Signals as data: a handler may run anywhere in the main thread, so it only notes what came."""

from __future__ import annotations

import select
import signal
from collections.abc import Sequence
from types import FrameType

from agent.lib.wake_pipe import WakePipe


class SignalWaker:
    """Wakes the main thread for these signals, in place of their handlers."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._came: list[int] = []
        # A pipe and not an Event: a handler that interrupts the main thread inside Event.wait would wait for itself.
        self._pipe = WakePipe()
        for number in numbers:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(self._pipe.into, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> list[int]:
        """Return the signals received; wait for at most this many seconds."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        if poll.poll(max(seconds, 0.0) * 1000):
            self._pipe.drain()
        came, self._came = self._came, []
        return came

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
