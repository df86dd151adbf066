"""Makes frames of the agent's own readings, which are computed again at each tick."""

from collections.abc import Iterable
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import EMPTY_FRAME, EMPTY_LAYOUT, Entity, Frame, Labels, Layout, Node, Series

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
        self._keys: tuple[object, ...] = ()
        self._layout = EMPTY_LAYOUT

    def frame(self, readings: Iterable[OwnReading]) -> Frame:
        """Return the frame of these readings, in their order."""
        columns = tuple(zip(*readings, strict=True))
        if not columns:
            return EMPTY_FRAME
        names, values, labels, entities = columns
        # Comparing whole columns with those of the last frame takes a fifth of the time of looking each series up.
        if (names, labels, entities) != self._keys:
            self._keys = (names, labels, entities)
            self._lay_out(tuple(zip(names, labels, entities, strict=True)))
        return Frame(self._layout, values)

    def _lay_out(self, keys: tuple[tuple[str, Labels, Entity], ...]) -> None:
        series_of = self._known
        for key in keys:
            if key not in series_of:
                name, labels, entity = key
                series_of[key] = Series(BY_NAME[name], entity, labels)
        series = tuple(map(series_of.__getitem__, keys))
        if series != self._layout.series:
            self._layout = Layout(series)
        if len(series_of) > _SPARE * len(series) + _SPARE:
            series_of.clear()
