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
    """Notices by the labels of their alert, the oldest first. Where something is lost, the number is returned.

    With `expires`, an alert that fires is not given out once it is no longer valid: Alertmanager would read a past
    endsAt as its end.
    """

    def __init__(self, capacity: int = CAPACITY, expires: bool = True) -> None:
        self._capacity = capacity
        self._expires = expires
        self._waiting: OrderedDict[Labels, Notice] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, notices: Iterable[Notice]) -> int:
        """Add, each in the place of an older state of the same alert; the number that no longer fitted."""
        # A new incident may so take the place of the undelivered end of the one before. To a receiver they are one
        # alert, since their labels are the same: it goes on firing, and Alertmanager keeps the earlier startsAt.
        dropped = 0
        for notice in notices:
            self._waiting[notice.alert.labels] = notice
            if len(self._waiting) > self._capacity:
                self._waiting.popitem(last=False)
                dropped += 1
        return dropped

    def take(self, limit: int, now: float) -> tuple[list[Notice], int]:
        """At most `limit` of the oldest, at a time in wall seconds; and the number that were no longer valid."""
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
        """Return what was taken, to either end, unless something newer has come; the number that no longer fitted."""
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
        """All that were in it, the oldest first."""
        left = list(self._waiting.values())
        self._waiting.clear()
        return left
