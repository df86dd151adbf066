"""A receiver of alerts: its interface, its counters, and the difference between its clock and ours.

Alertmanager compares `endsAt` with its own clock. From a node whose clock is ten minutes behind every alert would be
expired on arrival, and one that other nodes also send would be resolved for all of them each time it is sent. The
`Date` of each response (RFC 9110, 6.6.1) gives the time there, to the second. It may not come from Alertmanager itself:
a proxy in between may set it, and its clock may be wrong. So only responses to delivered alerts count, and offsets of
more than an hour are ignored.
"""

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple, Protocol

from agent.lib.logs import LogOnce
from agent.model import Alert, Instant
from alerts.lifecycle import moved


class Notice(NamedTuple):
    """An alert on its way; its labels include the external ones. `valid_until` is in wall seconds."""

    alert: Alert
    valid_until: float


def rfc3339(wall: float) -> str:
    """Return a time in UTC with milliseconds, the finest part that Prometheus's own times have."""
    moment = datetime.fromtimestamp(round(wall * 1000) / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def texts(alert: Alert) -> dict[str, dict[str, str]]:
    """Return labels and annotations for JSON. An empty label counts as missing, for Alertmanager, too."""
    return {
        "labels": {name: value for name, value in alert.labels if value},
        "annotations": {name: str(value) for name, value in alert.annotations.items()},
    }


class Counts:
    """Counts of one receiver's notices by their result, and of its failed attempts. The counts only grow."""

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

    name: str
    repeats: bool
    counts: Counts

    @property
    def url(self) -> str: ...

    @property
    def queued(self) -> int:
        """Number of notices that are queued or being sent."""

    def accept_notices(self, notices: Sequence[Notice], at: float) -> None:
        """Accept notices; never blocks."""

    def stop(self, grace: float) -> None:
        """Try for `grace` seconds to deliver what is queued, then end."""


log = logging.getLogger("coldplate.notify")

TOLERANCE_SECONDS = 10.0
"""Seconds by which the clocks may differ before times are changed: far less than an alert stays valid."""
TOGETHER_SECONDS = 8.0
"""Seconds within which they must be before times are sent by our own again: the header has a resolution of a second."""
MOST_SECONDS = 3600.0
"""Most seconds by which ours is believed to be wrong: beyond that, the other is as likely to be."""


_DATE = "%a, %d %b %Y %H:%M:%S GMT"
"""`Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7): the one form that servers may send."""


class ServerClock:
    """`ahead`: seconds that the receiver's clock is ahead of this node's, 0 while they agree. For one thread."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._once = LogOnce(log)

    def apply_date(self, date: str, sent: Instant, received: Instant) -> bool:
        """Take in an answer's date, if valid; returns whether what was just sent had wrong times."""
        try:
            there = datetime.strptime(date, _DATE).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            return False
        ahead = there + 0.5 - (sent.wall + (received.mono - sent.mono) / 2)
        if abs(ahead) > MOST_SECONDS:
            text = (
                "the receiver's Date header is too far from our clock to be trusted; check both clocks, and any proxy"
            )
            self._once.problem("date", text, facts={"ahead": f"{ahead:+.0f}s", "most": f"{MOST_SECONDS:.0f}s"})
            return False
        self._once.over("date")
        before = self.ahead
        if abs(ahead) <= (TOGETHER_SECONDS if before else TOLERANCE_SECONDS):
            ahead = 0.0
        elif abs(ahead - before) <= TOLERANCE_SECONDS / 2:
            return False  # the header is no finer than a second: keep the offset
        self.ahead = ahead
        return abs(ahead - before) > TOLERANCE_SECONDS / 2

    def shift_times(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """Return the notices, with all times by the receiver's clock."""
        if not self.ahead:
            return notices
        return [Notice(moved(notice.alert, self.ahead), notice.valid_until + self.ahead) for notice in notices]
