"""The configuration in the sampler's terms; all times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from agent.model import Lane
from agent.sampler.estimate import DEFAULT, Coefficients


@dataclass(frozen=True, slots=True)
class Ranges:
    """The shortest range, in seconds, over which rules read something of each lane."""

    fast: float = inf
    slow: float = inf
    cold: float = inf


@dataclass(frozen=True, slots=True)
class Settings:
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
        """Seconds between two samples of a lane; events come with the fast one."""
        if lane is Lane.SLOW:
            return self.slow
        return self.cold if lane is Lane.COLD else self.fast

    def patience(self, lane: Lane) -> float:
        """Seconds after which a lane's last sample no longer says anything about the present."""
        if lane is Lane.SLOW:
            return 2 * self.slow + self.deadline
        if lane is Lane.COLD:
            return 2 * self.cold + self.deadline
        return max(self.deadline, 3 * self.fast)
