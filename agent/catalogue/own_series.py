"""Readings of rows by name, for what is told again and again: each series is made once."""

from __future__ import annotations

from agent.catalogue import BY_NAME
from agent.model import Entity, Labels, Reading, Series


class OwnSeries:
    """Remembers the series that it made."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, Entity, Labels], Series] = {}

    def reading(self, name: str, entity: Entity, value: float, labels: Labels = ()) -> Reading:
        """A reading of the row of this name."""
        key = (name, entity, labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(BY_NAME[name], entity, labels)
        return Reading(series, value)
