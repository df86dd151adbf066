"""Makes frames of the agent's own readings, which are computed again at each tick."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import Entity, Frame, Framer, Labels, Node, Reading, Series

NODE = Node()
_SPARE = 4
"""Series are forgotten when there are this many times as many as the last frame had."""


class OwnReading(NamedTuple):
    """The value of a metric by its name, in the metric's unit, of the node or another entity."""

    name: str
    value: float
    labels: Labels = ()
    entity: Entity = NODE


class OwnSeries:
    """Turns readings into frames. A series is made once, and the layout stays while the series are the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Labels, Entity], Series] = {}
        self._framer = Framer()

    def frame(self, readings: Iterable[OwnReading]) -> Frame:
        """Return the frame of these readings, in their order."""
        known = self._known
        paired = []
        for name, value, labels, entity in readings:
            key = (name, labels, entity)
            series = known.get(key)
            if series is None:
                series = known[key] = Series(BY_NAME[name], entity, labels)
            paired.append(Reading(series, value))
        if len(known) > _SPARE * len(paired) + _SPARE:
            known.clear()
        return self._framer.frame(paired)
