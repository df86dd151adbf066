"""Backends that do not answer: a read that has been in flight for too long counts as failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from agent.sampler.backend_runner import Flight

log = logging.getLogger("coldplate.backend")


class Overdue:
    """Follows which backends have had a read in flight for too long."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    @property
    def since(self) -> dict[str, float]:
        """Since when each overdue backend has been silent, in monotonic seconds. For any thread."""
        return dict(self._since)

    def look(self, flights: Mapping[str, Flight], now: float, patience: float) -> dict[str, str]:
        """For each overdue backend, how long it has been silent, in words. Times in monotonic seconds.

        The patience is the same for all lanes: a thread that hangs in the cold lane keeps the fast one waiting.
        """
        late = {name: flight for name, flight in flights.items() if now - flight.since > patience}
        for name, flight in late.items():
            if name not in self._since:
                facts = {"backend": name, "lane": flight.lane.value, "seconds": round(now - flight.since, 1)}
                log.warning("backend does not answer", extra={"facts": facts})
            self._since.setdefault(name, flight.since)
        for name in [name for name in self._since if name not in late]:
            seconds = round(now - self._since.pop(name), 1)
            log.info("backend answers again", extra={"facts": {"backend": name, "seconds": seconds}})
        waited = {name: now - flight.since for name, flight in late.items()}
        return {name: f"no answer for {seconds:.{int(seconds < 10)}f} s" for name, seconds in waited.items()}
