"""Sends times by the receiver's clock, if ours is far from it.

Alertmanager compares `endsAt` with its own clock. From a node whose clock is ten minutes behind every alert would be
expired on arrival, and one that other nodes also send would be resolved for all of them each time it is sent. The
`Date` of each response (RFC 9110, 6.6.1) gives the time there, to the second.

It may not come from Alertmanager itself: a proxy in between may set it, and its clock may be wrong. So only responses
to delivered alerts count, and offsets of more than an hour are ignored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

from agent.model import Instant
from alerts.notify.notice import Notice

log = logging.getLogger("coldplate.notify")

TOLERANCE_SECONDS = 10.0
"""Seconds by which the clocks may differ before times are changed: far less than an alert stays valid."""
TOGETHER_SECONDS = 8.0
"""Seconds within which they must be before times are sent by our own again: the header has a resolution of a second."""
MOST_SECONDS = 3600.0
"""Most seconds by which ours is believed to be wrong: beyond that, the other is as likely to be."""


_DATE = re.compile(r"[A-Za-z]{3}, ([0-9]{2}) ([A-Za-z]{3}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT")
"""`Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7)."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class ServerClock:
    """`ahead`: seconds that the receiver's clock is ahead of ours, 0 while they agree. For one thread."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._said = False

    def hear(self, date: str, sent: Instant, received: Instant) -> bool:
        """Take in an answer's date, if valid; returns whether what was just sent had wrong times."""
        there = _parsed(date)
        if there is None:
            return False
        ahead = there + 0.5 - (sent.wall + (received.mono - sent.mono) / 2)
        if abs(ahead) > MOST_SECONDS:
            self._disbelieve(ahead)
            return False
        self._said = False
        before = self.ahead
        if abs(ahead) <= (TOGETHER_SECONDS if before else TOLERANCE_SECONDS):
            ahead = 0.0
        elif abs(ahead - before) <= TOLERANCE_SECONDS / 2:
            return False  # the header is no finer than a second: keep the offset
        self.ahead = ahead
        return abs(ahead - before) > TOLERANCE_SECONDS / 2

    def forget(self) -> None:
        """Use our own clock again, until the next answer."""
        self.ahead = 0.0

    def _disbelieve(self, ahead: float) -> None:
        """Log once that an answer's date is ignored."""
        if not self._said:
            self._said = True
            text = (
                "the receiver's Date header is too far from our clock to be trusted; check both clocks, and any proxy"
            )
            log.warning(text, extra={"facts": {"ahead": f"{ahead:+.0f}s", "most": f"{MOST_SECONDS:.0f}s"}})

    def told(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """The notices, with all times by the receiver's clock."""
        return [_moved(notice, self.ahead) for notice in notices] if self.ahead else notices


def _parsed(date: str) -> float | None:
    """The time of a `Date`, in the one form that servers may send; None if it has another."""
    found = _DATE.fullmatch(date)
    if found is None or found[2].lower() not in _MONTHS:
        return None
    month = _MONTHS.index(found[2].lower()) + 1
    day, year, hour, minute, second = (int(found[place]) for place in (1, 3, 4, 5, 6))
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _moved(notice: Notice, seconds: float) -> Notice:
    alert = notice.alert
    fired, resolved = alert.fired_at, alert.resolved_at
    moved = replace(
        alert,
        fired_at=None if fired is None else fired + seconds,
        resolved_at=None if resolved is None else resolved + seconds,
    )
    return Notice(moved, notice.valid_until + seconds)
