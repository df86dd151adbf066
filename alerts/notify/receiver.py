"""The interface of a receiver of notices, and its counters."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from alerts.notify.notice import Notice


class Counts:
    """What became of one receiver's notices, and its failed attempts. The counts only grow."""

    __slots__ = ("_lock", "dropped", "failed", "sent")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent = 0
        self.dropped = 0
        self.failed = 0

    def add(self, sent: int = 0, dropped: int = 0, failed: int = 0) -> None:
        """Add to the counts; two threads may do so at once."""
        with self._lock:
            self.sent += sent
            self.dropped += dropped
            self.failed += failed


class Receiver(Protocol):
    """A receiver of alerts.

    `url` may be seen by anyone, distinguishes receivers, and is empty for the log. A receiver that `repeats` is
    notified again and again, as Alertmanager must be; the others only of changes.
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
        """Number of notices that are queued or being sent."""
        ...

    def put(self, notices: Sequence[Notice], at: float) -> None:
        """Accept notices; never blocks."""
        ...

    def stop(self, grace: float) -> None:
        """Try for `grace` seconds to deliver what is queued, then end."""
        ...
