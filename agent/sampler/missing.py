"""What is missing from a snapshot: the gaps of each backend, and a series for each metric that has any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.catalogue import BY_NAME
from agent.model import EMPTY_FRAME, Entity, Frame, Framer, Gap, Metric, NvLink, Reading, Reason, Series

MISSING = BY_NAME["coldplate_metric_missing"]

ROOM = 20_000
"""Most series that are remembered: devices come and go as long as the agent runs."""

Source = tuple[str, Sequence[Gap]]
"""A backend, and some gaps of it."""


class MissingMetrics:
    """Gathers gaps. They are mostly those of the last snapshot, and then the same result is returned again."""

    def __init__(self) -> None:
        self._series: dict[tuple[Metric, Entity, Reason], Series] = {}
        self._framer = Framer()
        self._sources: list[Source] = []
        self._made: tuple[Mapping[str, tuple[Gap, ...]], Frame] = ({}, EMPTY_FRAME)

    def gather(self, sources: list[Source]) -> tuple[Mapping[str, tuple[Gap, ...]], Frame]:
        """All gaps by backend, and their coldplate_metric_missing; one series for all links of a GPU."""
        if sources != self._sources:
            gaps: dict[str, tuple[Gap, ...]] = {}
            for backend, some in sources:
                gaps[backend] = (*gaps.get(backend, ()), *some)
            self._sources, self._made = sources, (gaps, self._framer.frame(self._readings(sources)))
        return self._made

    def _readings(self, sources: Sequence[Source]) -> Iterator[Reading]:
        """Each series once: two lanes of a device may miss the same metric."""
        seen: dict[Series, None] = {}
        for _, gaps in sources:
            for gap in gaps:
                entity = gap.entity.gpu if isinstance(gap.entity, NvLink) else gap.entity
                key = (gap.metric, entity, gap.reason)
                seen[self._series.get(key) or self._make(key)] = None
        return (Reading(series, 1) for series in seen)

    def _make(self, key: tuple[Metric, Entity, Reason]) -> Series:
        metric, entity, reason = key
        labels = (("metric", metric.name), ("reason", reason.value))
        if len(self._series) >= ROOM:
            self._series.clear()
        series = self._series[key] = Series(MISSING, entity, labels)
        return series
