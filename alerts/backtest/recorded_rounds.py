"""The rounds of a rule engine that gets recorded snapshots at the times that they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.model import Instant, Snapshot
from alerts.round_times import patient_time, prompt_time

PAUSE_SECONDS = 300.0
"""Seconds without a snapshot behind which everything begins anew: as long as instant selectors look back."""
_HAIR = 1e-6
"""What the rounding of sums may come to, in seconds."""


class Round(NamedTuple):
    """One round of the engine: what it takes in, and when it takes place."""

    snapshot: Snapshot
    now: Instant


class RecordedRounds:
    """Gives the rounds that the daemon would have gone through; `interval` and `period` as in `patient_time`.

    While snapshots are late, the rounds go on with the last one. Where some are missing, as the numbers of those around
    them tell, nothing is known of that time, and it has no rounds.
    """

    def __init__(self, interval: float, period: float) -> None:
        self._interval = interval
        self._period = period
        self._last: Snapshot | None = None
        self._began = float("-inf")

    def begins_anew(self, snapshot: Snapshot) -> bool:
        """Whether what comes now has nothing to do with what was: after a reboot or a long pause."""
        if self._last is None:
            return False
        passed = snapshot.at.mono - self._last.at.mono
        return not 0 <= passed <= PAUSE_SECONDS

    def take(self, snapshot: Snapshot) -> Iterator[Round]:
        """The rounds until a snapshot, and its own if it is time for one. One that was there already has none."""
        at, last = snapshot.at, self._last
        if last is not None and not self.begins_anew(snapshot):
            if (snapshot.sequence, at) == (last.sequence, last.at):
                return
            if snapshot.sequence == last.sequence + 1 or at.mono - last.at.mono <= 2 * self._period:
                yield from self._without(last, at.mono)
        else:
            self._began = float("-inf")
        self._last = snapshot
        if at.mono >= prompt_time(self._began, self._interval) - _HAIR:
            self._began = at.mono
            yield Round(snapshot, at)

    def _without(self, last: Snapshot, until: float) -> Iterator[Round]:
        """The rounds of a time without a new snapshot."""
        while (at := patient_time(self._began, self._interval, self._period)) < until - _HAIR:
            self._began = at
            yield Round(last, Instant(at, last.at.wall + at - last.at.mono))
