"""When the lanes are due: the sampler's settings, in seconds, and how far the periods may be stretched.

The schedule keeps to its grid: missed ticks are counted, never made up. When periods are stretched, the slow and the
cold lane go first, and the fast one last. Staleness follows the periods (`Settings.stale_after`), so that no series
ends because its lane is slower. What else depends on them sets their limits.
"""

from math import inf

from msgspec import Struct
from msgspec.structs import replace

from agent.model import Lane
from agent.sampler.node_sums import DEFAULT, Coefficients


class Ranges(Struct, frozen=True):
    """The shortest range, in seconds, over which rules read something of each lane."""

    fast: float = inf
    slow: float = inf
    cold: float = inf


class Settings(Struct, frozen=True):
    """Periods of the lanes, the deadline of a device's answer, and the span of rolling statistics."""

    fast: float = 1.0
    slow: float = 15.0
    cold: float = 60.0
    deadline: float = 2.0
    window: float = 60.0
    expected_gpus: int | None = None
    estimate: Coefficients | None = DEFAULT
    """How node power is estimated if nothing measures it; None: not at all."""
    cpu_budget: float = 0.25
    """The share of one core that the agent may take before its lanes are slowed down; `inf` is any."""
    ranges: Ranges = Ranges()
    """What rules read, which limits how far lanes can be slowed down."""

    def period(self, lane: Lane) -> float:
        """Return seconds between two samples of a lane; events come with the fast one."""
        if lane is Lane.SLOW:
            return self.slow
        return self.cold if lane is Lane.COLD else self.fast

    def stale_after(self, lane: Lane) -> float:
        """Return seconds after which a lane's last sample no longer says anything about the present."""
        if lane in (Lane.SLOW, Lane.COLD):
            return 2 * self.period(lane) + self.deadline
        return max(self.deadline, 3 * self.fast)


LONGEST_FAST_SECONDS = 1.0
"""The longest that a fast lane is stretched to: a rack adds up whole seconds, and a hung GPU is to show within five."""
MOST_TIMES = 4.0
"""How many times as long the slow and the cold period become at most: what they show may be that much later."""
SAMPLES = 4.0
"""Reads that the shortest range of a rule must hold: Prometheus's advice for `rate`, which tolerates a lost one."""


def steps_of(settings: Settings) -> tuple[Settings, ...]:
    """Return the settings of each step: first those given, then ones with ever longer periods in some lane."""
    if settings.cpu_budget == inf:
        return (settings,)
    ranges = settings.ranges
    fast = _limit(settings.fast, LONGEST_FAST_SECONDS, ranges.fast)
    slow = _limit(settings.slow, MOST_TIMES * settings.slow, ranges.slow)
    cold = _limit(settings.cold, MOST_TIMES * settings.cold, ranges.cold)
    steps = [settings]
    while (last := steps[-1]).slow < slow or last.cold < cold:
        longer = min(2 * last.slow, slow)
        steps.append(replace(last, slow=longer, cold=max(min(2 * last.cold, cold), longer)))
    while (last := steps[-1]).fast < fast:
        longer = min(2 * last.fast, fast)
        steps.append(replace(last, fast=longer, slow=max(last.slow, longer), cold=max(last.cold, longer)))
    return tuple(steps)


def slowest(settings: Settings) -> Settings:
    """Return the settings of the last step."""
    return steps_of(settings)[-1]


def _limit(period: float, longest: float, shortest_range: float) -> float:
    """Return the longest period of a lane; never a shorter one than is configured."""
    return max(period, min(longest, shortest_range / SAMPLES))


class Schedule:
    """The grid of ticks, on the monotonic clock, in seconds."""

    def __init__(self, settings: Settings, start: float) -> None:
        self._settings = settings
        self.next_tick = start
        self._due = {Lane.SLOW: start, Lane.COLD: start}
        self._hastened = -inf
        self.ticks = 0
        self.missed = 0

    def reconfigure(self, settings: Settings, now: float) -> None:
        """Continue with other periods; nothing is due later than a new period after its last read, or the next tick.

        Otherwise what was read a while ago would be older at its next read than a shorter period allows.
        """
        self.next_tick = min(self.next_tick, now + settings.fast)
        for lane, due in self._due.items():
            last = due - self._settings.period(lane)
            self._due[lane] = min(due, max(last + settings.period(lane), self.next_tick))
        self._settings = settings

    def hasten(self, now: float) -> None:
        """Have every lane read soon: at the next tick, or a slow period after the last such request.

        Otherwise a device that comes back would lack what is read rarely for a whole period. A device that keeps coming
        and going does not make rare lanes frequent.
        """
        if self._hastened <= now:
            self._hastened = max(self.next_tick, self._hastened + self._settings.slow)
            self._due = {lane: min(due, self._hastened) for lane, due in self._due.items()}

    def take_due(self, now: float) -> tuple[Lane, ...]:
        """Return the lanes due at the tick that begins now."""
        period = self._settings.fast
        late = int((now - self.next_tick) / period)
        self.missed += max(late, 0)
        self.next_tick += (max(late, 0) + 1) * period
        self.ticks += 1
        lanes = [Lane.FAST]
        for lane, due in self._due.items():
            # Half a tick of tolerance, so that rounding does not push a lane to the next tick.
            if now >= due - period / 2:
                lanes.append(lane)
                self._due[lane] = max(due + self._settings.period(lane), now)
        return tuple(lanes)
