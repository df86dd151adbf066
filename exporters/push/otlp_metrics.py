"""Snapshots as OpenTelemetry's metrics: made of the SDK's data model directly, and not through its instruments.

An instrument reports its last value for ever; so what is absent stays absent, and times are the snapshot's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from agent.model import Layout, Series, Snapshot
from exporters.encoder import AGE_SERIES, group
from exporters.push.otlp_names import Instrument, OtlpName, attributes_of, name_of

SCHEMA = "https://opentelemetry.io/schemas/1.36.0"
"""The version of the conventions that the names follow."""
_NANO = 1_000_000_000


class _Column(NamedTuple):
    """A metric: its name, its meaning, and the places of its values with their attributes."""

    name: OtlpName
    help: str
    points: list[tuple[int, dict[str, str]]]


class MetricsMaker:
    """Makes them. `resource` says whose they are, and `version` what measured them."""

    def __init__(self, resource: Mapping[str, str], version: str) -> None:
        self._resource = Resource(dict(resource), SCHEMA)
        self._scope = InstrumentationScope("coldplate", version)
        self._layouts: tuple[Layout, ...] = ()
        self._columns: list[_Column] = []
        self._age = _columns([AGE_SERIES], [0])
        self._began: int | None = None
        """When counters were first seen, in nanoseconds since the epoch."""

    def make(self, snapshot: Snapshot, age: float, wall: float) -> MetricsData:
        """Return everything that the snapshot has at its time, and its age in seconds at the wall second `wall`."""
        layouts = tuple(frame.layout for frame in snapshot.frames)
        if layouts != self._layouts:
            self._columns, self._layouts = _laid_out(layouts), layouts
        values = tuple(chain.from_iterable(frame.values for frame in snapshot.frames))
        at = round(snapshot.at.wall * _NANO)
        if self._began is None:
            self._began = at
        made = self._metrics(self._columns, values, at)
        return self._whole([*made, *self._metrics(self._age, (age,), round(wall * _NANO))])

    def only_age(self, age: float, wall: float) -> MetricsData:
        """Return only the age of the last snapshot: a push without a newer one sends nothing else."""
        return self._whole(self._metrics(self._age, (age,), round(wall * _NANO)))

    def _metrics(self, columns: Iterable[_Column], values: Sequence[float], at: int) -> list[Metric]:
        return [_metric(each, values, self._began or at, at) for each in columns]

    def _whole(self, metrics: Sequence[Metric]) -> MetricsData:
        return MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(self._scope, metrics, SCHEMA)], SCHEMA)])


def _metric(column: _Column, values: Sequence[float], began: int, at: int) -> Metric:
    name = column.name
    gauge = name.instrument is Instrument.GAUGE
    points = [
        NumberDataPoint(attributes, 0 if gauge else began, at, float(values[place]))
        for place, attributes in column.points
    ]
    if gauge:
        return Metric(name.name, column.help, name.unit, Gauge(points))
    monotonic = name.instrument is Instrument.COUNTER
    return Metric(name.name, column.help, name.unit, Sum(points, AggregationTemporality.CUMULATIVE, monotonic))


def _laid_out(layouts: Sequence[Layout]) -> list[_Column]:
    series = tuple(chain.from_iterable(each.series for each in layouts))
    places = [place for family in group(series) for place in family.members if family.metric is not AGE_SERIES.metric]
    return _columns([series[place] for place in places], places)


def _columns(series: Sequence[Series], places: Sequence[int]) -> list[_Column]:
    """Return series and the places of their values, by metric. Several of our rows may be one metric there."""
    found: dict[str, _Column] = {}
    for each, place in zip(series, places, strict=True):
        name = name_of(each.metric)
        column = found.setdefault(name.name, _Column(name, each.metric.help, []))
        column.points.append((place, attributes_of(each, name)))
    return list(found.values())
