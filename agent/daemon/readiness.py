"""Whether the last sample is fresh: what `/-/ready` answers."""

from __future__ import annotations

from collections.abc import Callable

from agent.daemon.hub import Hub
from agent.model import Instant, Lane, Outcome
from agent.sampler.sampler import Sampler


class Readiness:
    """Checks the last snapshot, with the sampler's patience."""

    def __init__(self, hub: Hub, sampler: Sampler, clock: Callable[[], Instant]) -> None:
        self._hub = hub
        self._sampler = sampler
        self._clock = clock

    def __call__(self) -> tuple[bool, str]:
        """Whether it is fresh and of all devices, and a sentence about it."""
        snapshot = self._hub.latest
        if snapshot is None:
            return False, "no sample yet"
        age = self._clock().mono - snapshot.at.mono
        if age > self._sampler.settings.patience(Lane.FAST):
            return False, f"the last sample is {age:.1f} s old"
        for report in snapshot.reports:
            if report.backend == self._sampler.devices and report.outcome is Outcome.FAILED:
                return False, f"the devices cannot be read: {report.detail}"
        return True, f"the last sample is {max(age, 0.0):.1f} s old"
