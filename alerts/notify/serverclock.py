"""Tells times by the receiver's clock, where ours is far from it.

Alertmanager compares `endsAt` with its own clock. From a node whose clock is ten minutes behind every alert would have
ended before it came, and one that other nodes tell, too, would be resolved for all of them each time it is sent. The
`Date` of each answer (RFC 9110, 6.6.1) says what time it is there, to the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.model import Instant
from alerts.notify.notice import Notice

TOLERANCE = 10.0
"""Seconds by which the clocks may differ before times are changed: far less than an alert stays valid."""


class ServerClock:
    """`ahead`: seconds that the receiver's clock is ahead of ours, 0 while they are together. For one thread."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def hear(self, date: str, sent: Instant, received: Instant) -> bool:
        """Take note of an answer's date, if it is one; whether what was just sent bore wrong times."""
        from email.utils import parsedate_to_datetime  # what sends has loaded it already

        try:
            there = parsedate_to_datetime(date).timestamp() + 0.5
        except (TypeError, ValueError, OverflowError):
            return False
        ahead = there - (sent.wall + (received.mono - sent.mono) / 2)
        before = self.ahead
        if abs(ahead) <= TOLERANCE:
            ahead = 0.0
        elif abs(ahead - before) <= TOLERANCE / 2:
            return False  # the second is as fine as the header tells: what was told stays as it is
        self.ahead = ahead
        return abs(ahead - before) > TOLERANCE / 2

    def told(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """The notices with all times by the receiver's clock."""
        return [_moved(notice, self.ahead) for notice in notices] if self.ahead else notices


def _moved(notice: Notice, seconds: float) -> Notice:
    alert = notice.alert
    fired, resolved = alert.fired_at, alert.resolved_at
    moved = replace(
        alert,
        fired_at=None if fired is None else fired + seconds,
        resolved_at=None if resolved is None else resolved + seconds,
    )
    return Notice(moved, notice.valid_until + seconds)
