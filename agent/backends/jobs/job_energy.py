"""The energy of each job: the growth of its GPUs' energy counters while it holds them alone.

The energy of a GPU shared by several jobs is attributed to none of them, nor is what a GPU used before the job was seen
on it: the sum is never too high.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.backends.jobs.job import Key
from agent.model import Gpu

KEEP_SECONDS = 600.0
"""Seconds for which a job that holds no GPU is remembered: between two steps of a job nothing may run."""


class JobEnergy:
    """Joules by job."""

    def __init__(self) -> None:
        self._totals: dict[Key, float] = {}
        self._last: dict[Gpu, tuple[Key, float]] = {}
        self._seen: dict[Key, float] = {}
        self._started: dict[Key, float] = {}

    def enter(self, owners: Mapping[Gpu, Key], energy: Mapping[Gpu, float]) -> None:
        """Take in which job has which GPU to itself now, and the counters (joules; a GPU without one is left out)."""
        last: dict[Gpu, tuple[Key, float]] = {}
        for gpu, key in owners.items():
            before = self._last.get(gpu)
            same = before is not None and before[0] == key
            joules = energy.get(gpu)
            if joules is None:
                if before is not None and same:
                    last[gpu] = before  # the counter will show what was used meanwhile
                continue
            self._totals.setdefault(key, 0.0)
            if before is not None and same and joules > before[1]:
                self._totals[key] += joules - before[1]
            last[gpu] = key, joules
        self._last = last

    def keep(self, keys: Mapping[Key, float | None], mono: float) -> None:
        """Remember these jobs, and the earliest start known of each; forget those long gone."""
        for key, started in keys.items():
            self._seen[key] = mono
            known = self._started.get(key)
            if started is not None and (known is None or started < known):
                self._started[key] = started
        for key in [key for key, at in self._seen.items() if mono - at > KEEP_SECONDS]:
            del self._seen[key]
            self._totals.pop(key, None)
            self._started.pop(key, None)

    def total(self, key: Key) -> float | None:
        """Joules of a job so far; None for one that never had a GPU with a counter to itself."""
        return self._totals.get(key)

    def started(self, key: Key) -> float | None:
        """When the job began, in seconds since the epoch."""
        return self._started.get(key)
