"""Which metrics are exposed: `metrics.include` and `metrics.exclude`, names with `*`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from agent.catalogue import BY_NAME
from agent.config import ConfigError
from agent.model import Metric, Snapshot

PREFIX = "coldplate_infiniband_"
"""Drivers have counters of their own names, whose rows are made when they are seen."""


class Selection:
    """Leaves metrics out of a snapshot. Raises ConfigError for a pattern that can match nothing."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = ["*" if pattern == "all" else pattern for pattern in include]
        self._exclude = ["*" if pattern == "all" else pattern for pattern in exclude]
        self._verdicts: dict[Metric, bool] = {}
        self._last: tuple[Snapshot, Snapshot] | None = None
        self.everything = self._include == ["*"] and not self._exclude
        for key, patterns in (("metrics.include", self._include), ("metrics.exclude", self._exclude)):
            for pattern in patterns:
                _check(key, pattern)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the selected metrics only; the same object again for the same snapshot."""
        if self.everything:
            return snapshot
        if self._last is None or self._last[0] is not snapshot:
            readings = tuple(reading for reading in snapshot.readings if self._shows(reading.series.metric))
            self._last = (snapshot, replace(snapshot, readings=readings))
        return self._last[1]

    def _shows(self, metric: Metric) -> bool:
        verdict = self._verdicts.get(metric)
        if verdict is None:
            name = metric.name
            verdict = self._verdicts[metric] = any(fnmatchcase(name, pattern) for pattern in self._include) and not any(
                fnmatchcase(name, pattern) for pattern in self._exclude
            )
        return verdict


def _check(key: str, pattern: str) -> None:
    if any(fnmatchcase(name, pattern) for name in BY_NAME) or pattern.startswith(PREFIX):
        return
    near = difflib.get_close_matches(pattern, BY_NAME, 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "; see docs/metrics.md for the names"
    raise ConfigError(f"{key}: {pattern!r} matches no metric{hint}")
