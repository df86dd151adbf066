"""Wakes a loop that waits for descriptors."""

from __future__ import annotations

import os


class WakePipe:
    """Wakes the loop from any thread and from signal handlers."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """For any thread; also when the pipe is full of wake-ups, or closed at the end."""
        try:
            os.write(self.into, b"\0")
        except OSError:
            return

    def drain(self) -> None:
        try:
            while os.read(self.out, 4096):
                pass
        except BlockingIOError:
            return
