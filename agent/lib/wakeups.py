"""Wakes a thread that waits in poll, select or a selector: from another thread, or when a signal comes."""

import os
import select
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType


class WakePipe:
    """A pipe whose read end the thread waits for; `into` is the other end, for `signal.set_wakeup_fd`."""

    def __init__(self) -> None:
        self._out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()  # a descriptor that was closed may already be another file's

    def fileno(self) -> int:
        """Return the descriptor that can be read after a wake-up."""
        return self._out

    def wake(self) -> None:
        """Wake the thread, unless the pipe is closed. For any thread, but not for signal handlers."""
        with self._lock, suppress(BlockingIOError):  # the pipe is already full of wake-ups
            if self.into >= 0:
                os.write(self.into, b".")

    def drain(self) -> None:
        """Take the wake-ups out, after the descriptor could be read."""
        with suppress(BlockingIOError):
            os.read(self._out, 4096)

    def close(self) -> None:
        """Close both ends; later wake-ups do nothing."""
        with self._lock:
            if self.into >= 0:
                os.close(self._out)
                os.close(self.into)
                self._out = self.into = -1


class SignalWaker:
    """Wakes the main thread for these signals, in place of their handlers.

    A handler may run anywhere in the main thread, so it only notes what came.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._came: list[int] = []
        # A pipe and not an Event: a handler that interrupts the main thread inside Event.wait would wait for itself.
        self._pipe = WakePipe()
        for number in numbers:
            signal.signal(number, self._add_signal)
        signal.set_wakeup_fd(self._pipe.into, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> list[int]:
        """Return the signals received; wait for at most this many seconds."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        if poll.poll(max(seconds, 0.0) * 1000):
            self._pipe.drain()
        came, self._came = self._came, []
        return came

    def _add_signal(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
