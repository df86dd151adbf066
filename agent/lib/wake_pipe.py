"""Wakes a thread that waits in poll, select or a selector."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


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
