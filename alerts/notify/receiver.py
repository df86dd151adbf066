"""The interface of a receiver of notices, and its counters."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from alerts.notify.notice import Notice


class Counts:
    """What became of the notices of one receiver, and the attempts that failed. They only grow."""

    __slots__ = ("_lock", "dropped", "failed", "sent")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent = 0
        self.dropped = 0
        self.failed = 0

    def add(self, sent: int = 0, dropped: int = 0, failed: int = 0) -> None:
        """Count; two threads may do so at once."""
        with self._lock:
            self.sent += sent
            self.dropped += dropped
            self.failed += failed


class Receiver(Protocol):
    """Somebody who is told about alerts.

    `url` is fit to be seen by everybody, tells receivers apart, and is empty for the log. One that `repeats` is told
    again and again, as Alertmanager must be; the others only of changes.
    """

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def repeats(self) -> bool: ...

    @property
    def counts(self) -> Counts: ...

    @property
    def queued(self) -> int:
        """Notices that wait or are on their way."""
        ...

    def put(self, notices: Sequence[Notice], at: float) -> None:
        """Take over; never blocks."""
        ...

    def stop(self, grace: float) -> None:
        """Try for so many seconds to deliver what waits, then end."""
        ...
