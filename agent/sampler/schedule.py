"""When the lanes are due. The schedule keeps to its grid: missed ticks are counted, never made up."""

from __future__ import annotations

from math import inf

from agent.model import Lane
from agent.sampler.settings import Settings


class Schedule:
    """The grid of ticks, on the monotonic clock, in seconds."""

    def __init__(self, settings: Settings, start: float) -> None:
        self._settings = settings
        self._next = start
        self._due = {Lane.SLOW: start, Lane.COLD: start}
        self._hastened = -inf
        self.ticks = 0
        self.missed = 0

    @property
    def next_tick(self) -> float:
        return self._next

    def reconfigure(self, settings: Settings, now: float) -> None:
        """Continue with other periods; nothing is due later than a new period after its last read, or the next tick.

        Otherwise what was read a while ago would be older at its next read than a shorter period allows.
        """
        self._next = min(self._next, now + settings.fast)
        for lane, due in self._due.items():
            last = due - self._settings.period(lane)
            self._due[lane] = min(due, max(last + settings.period(lane), self._next))
        self._settings = settings

    def hasten(self, now: float) -> None:
        """Have every lane read soon: at the next tick, or a slow period after the last such request.

        Otherwise a device that comes back would lack what is read rarely for a whole period. A device that keeps coming
        and going does not make rare lanes frequent.
        """
        if self._hastened <= now:
            self._hastened = max(self._next, self._hastened + self._settings.slow)
            self._due = {lane: min(due, self._hastened) for lane, due in self._due.items()}

    def take(self, now: float) -> tuple[Lane, ...]:
        """The lanes due at the tick that begins now."""
        period = self._settings.fast
        late = int((now - self._next) / period)
        self.missed += max(late, 0)
        self._next += (max(late, 0) + 1) * period
        self.ticks += 1
        lanes = [Lane.FAST]
        for lane, due in self._due.items():
            # Half a tick of tolerance, so that rounding does not push a lane to the next tick.
            if now >= due - period / 2:
                lanes.append(lane)
                self._due[lane] = max(due + self._settings.period(lane), now)
        return tuple(lanes)
