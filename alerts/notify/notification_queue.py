"""The queue of one receiver: bounded, and with only the newest state of each alert.

A receiver that was away needs to know the present state, not its history; so an outage of any length uses
no more memory than there are alerts. Not thread-safe by itself: its owner holds a lock (see `delivery`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from agent.model import Labels, Phase
from alerts.notify.notice import Notice

CAPACITY = 10_000
"""As many as Prometheus queues for its Alertmanagers."""


class NotificationQueue:
    """Notices by the labels of their alert, the oldest first. Methods return how many were lost.

    With `expires`, a firing alert is not given out once it is no longer valid: to Alertmanager a past endsAt would be
    its end.
    """

    def __init__(self, capacity: int = CAPACITY, expires: bool = True) -> None:
        self._capacity = capacity
        self._expires = expires
        self._waiting: OrderedDict[Labels, Notice] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, notices: Iterable[Notice]) -> int:
        """Add notices, each replacing an older state of the same alert; returns how many no longer fitted."""
        # So a new incident may replace the undelivered end of the one before. To a receiver they are one alert, since
        # their labels are the same: it keeps firing, and Alertmanager keeps the earlier startsAt.
        dropped = 0
        for notice in notices:
            self._waiting[notice.alert.labels] = notice
            if len(self._waiting) > self._capacity:
                self._waiting.popitem(last=False)
                dropped += 1
        return dropped

    def take(self, limit: int, now: float) -> tuple[list[Notice], int]:
        """At most `limit` of the oldest, at a time in wall seconds, and how many were no longer valid."""
        taken: list[Notice] = []
        outdated = 0
        while self._waiting and len(taken) < limit:
            _, notice = self._waiting.popitem(last=False)
            if self._expires and notice.alert.phase is Phase.FIRING and notice.valid_until <= now:
                outdated += 1
            else:
                taken.append(notice)
        return taken, outdated

    def give_back(self, notices: list[Notice], first: bool) -> int:
        """Put back what was taken, at either end, unless there is a newer state; returns how many no longer fitted."""
        dropped = 0
        for notice in reversed(notices) if first else notices:
            labels = notice.alert.labels
            if labels in self._waiting:
                continue
            if len(self._waiting) >= self._capacity:
                dropped += 1
                continue
            self._waiting[labels] = notice
            self._waiting.move_to_end(labels, last=not first)
        return dropped

    def empty(self) -> list[Notice]:
        """Take out all, the oldest first."""
        left = list(self._waiting.values())
        self._waiting.clear()
        return left
