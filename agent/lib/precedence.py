"""Who computes first: the thread that renders the metrics page, before those that have work for seconds.

Python runs one thread at a time and shares the time evenly, so that a page of 10 ms takes 30 beside two threads that
compute. Those that may compute for long call `give_way` after each small step, and wait there while a page is made: for
50 ms at most, and for a fifth of the time in all, so that no flood of scrapes stops them.
"""

from __future__ import annotations

import threading

LONGEST_SECONDS = 0.05
"""Most seconds for which a claim is respected."""
REST = 4.0
"""As many times as long as a claim lasted, there is no other."""

_clear = threading.Event()
_clear.set()


def give_way() -> None:
    """Wait while a page is made. For threads that compute, after each step of less than a millisecond."""
    if not _clear.is_set():
        _clear.wait(LONGEST_SECONDS)


class Precedence:
    """The claim of the thread that serves; only that thread calls it. Times are in seconds of a clock that goes on."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._next = float("-inf")

    @property
    def holds(self) -> bool:
        """Whether the others wait."""
        return self._since is not None

    def hold(self, wanted: bool, now: float) -> None:
        """Claim to go first for as long as it is `wanted`, within the bounds; call it often."""
        if self._since is None:
            if wanted and now >= self._next:
                self._since = now
                _clear.clear()
        elif not wanted or now - self._since >= LONGEST_SECONDS:
            self._next = now + REST * (now - self._since)
            self._since = None
            _clear.set()
