"""When the next request may be sent: at once, slower while there is a backlog, and later and later after failures."""

from __future__ import annotations

import os
from collections.abc import Callable

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Seconds until a failed request is sent again, doubled each time."""
LONGEST_WISH_SECONDS = 300.0
"""Seconds for which a receiver may ask us to wait, by Retry-After."""
CATCH_UP = 10
"""How many requests of a backlog are sent while one more is made: thousands of nodes catch up at the same time."""


def jitter() -> float:
    """A random number from 0 to 1, without the memory cost of the module `random`."""
    return os.urandom(1)[0] / 255


class PushPace:
    """`interval` is the number of seconds between two pushes. Times are monotonic seconds."""

    def __init__(self, interval: float, jitter: Callable[[], float] = jitter) -> None:
        self._interval = interval
        self._jitter = jitter
        self._failures = 0
        self.not_before = float("-inf")

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def answered(self, now: float) -> None:
        """The receiver took a request, or refused it for what is in it."""
        self._failures = 0
        self.not_before = now + self._interval / CATCH_UP

    def failed(self, now: float, wish: float = 0.0) -> None:
        """The receiver could not take a request. `wish` is how many seconds it asked us to wait."""
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 30), LONGEST_PAUSE_SECONDS)
        self._failures += 1
        pause *= 0.5 + 0.5 * self._jitter()
        self.not_before = now + max(pause, min(wish, LONGEST_WISH_SECONDS))
