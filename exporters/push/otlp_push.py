"""Pushes snapshots to an OpenTelemetry collector over HTTP, by the official exporter.

The metrics are made of the SDK's data model directly, and not through its instruments: an instrument reports its last
value for ever; so what is absent stays absent, and times are the snapshot's. Nothing is kept for later: the exporter
repeats a request for as long as its timeout, and then the samples are lost.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from agent.lib.http_target import HttpTarget
from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from agent.model import Instant, Layout, Series, Snapshot
from exporters.encoder import AGE_SERIES, ageless_places
from exporters.push.otlp_names import Instrument, OtlpName, attributes_of, name_of
from exporters.push.push_queue import EXPIRED, PushFigures, push_regularly

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
        self.resource = Resource(dict(resource), SCHEMA)
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
            series = tuple(chain.from_iterable(each.series for each in layouts))
            places = ageless_places(series)
            self._columns, self._layouts = _columns([series[place] for place in places], places), layouts
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
        return MetricsData([ResourceMetrics(self.resource, [ScopeMetrics(self._scope, metrics, SCHEMA)], SCHEMA)])


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


def _columns(series: Sequence[Series], places: Sequence[int]) -> list[_Column]:
    """Return series and the places of their values, by metric. Several of our rows may be one metric there."""
    found: dict[str, _Column] = {}
    for each, place in zip(series, places, strict=True):
        name = name_of(each.metric)
        column = found.setdefault(name.name, _Column(name, each.metric.help, []))
        column.points.append((place, attributes_of(each, name)))
    return list(found.values())


log = logging.getLogger("coldplate.push")

NAME = "otlp"


class ExporterLog(logging.Handler):
    """Keeps what the exporter would log at each failure: the push says it once."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


class OtlpPush:
    """One collector, which gets what `maker` makes every `interval` seconds.

    `latest` gives the newest snapshot with the series that are shown, and `clock` the time.
    """

    def __init__(
        self,
        target: HttpTarget,
        interval: float,
        maker: MetricsMaker,
        latest: Callable[[], Snapshot | None],
        clock: Callable[[], Instant],
        *,
        threads: Threads,
    ) -> None:
        self._target, self._interval, self.maker = target, interval, maker
        self._latest, self._clock, self._threads = latest, clock, threads
        self.figures = PushFigures(NAME, bytes=None, pending=None)
        self._exporter: OTLPMetricExporter | None = None
        self._exporter_log = ExporterLog()
        self._stopping = threading.Event()
        self._once = LogOnce(log)
        self._thread: KeptThread | None = None

    def start(self) -> None:
        theirs = logging.getLogger("opentelemetry")
        theirs.handlers, theirs.propagate = [self._exporter_log], False
        self._thread = self._threads.begin("push-otlp", self._run)

    def stop(self, seconds: float) -> None:
        """Stop; a request in flight has `seconds` to end."""
        self._stopping.set()
        if self._thread is not None and not self._thread.join(seconds) and self._exporter is not None:
            self._exporter.shutdown()  # ends the pauses between its attempts

    def _run(self) -> None:
        push_regularly(self._stopping, self._clock, self._interval, self._latest, self._push)
        self._forget()

    def _push(self, snapshot: Snapshot | None, age: float, now: Instant) -> None:
        """Push a new snapshot; of one that was pushed already, only how old it is."""
        wall = now.wall
        data = self.maker.only_age(age, wall) if snapshot is None else self.maker.make(snapshot, age, wall)
        (resource,) = data.resource_metrics
        samples = sum(len(metric.data.data_points) for scope in resource.scope_metrics for metric in scope.metrics)
        why = self._export(data)
        if why is None:
            self.figures.samples += samples
            self.figures.success, self.figures.oldest = self._clock().wall, None
        else:
            self.figures.failures += 1
            self.figures.dropped[EXPIRED] += samples
            self.figures.oldest = self.figures.oldest or now.wall
        self._tell(why)

    def _export(self, data: MetricsData) -> str | None:
        """Send the data; return the reason of a failure. After a failure the login is read again."""
        self._exporter_log.last = ""
        try:
            if self._exporter is None:
                self._exporter = _exporter(self._target)
            if self._exporter.export(data) is MetricExportResult.SUCCESS:
                return None
            why = self._exporter_log.last or "the exporter does not say why"
        except (OSError, ValueError) as error:
            why = str(error)
        self._forget()
        return why

    def _forget(self) -> None:
        if self._exporter is not None:
            self._exporter.shutdown()
            self._exporter = None

    def _tell(self, why: str | None) -> None:
        """Log once that it fails, and once that it is well again."""
        facts = {"push": NAME, "url": self._target.shown}
        if why is None:
            self._once.over(NAME, "push recovered", facts=facts)
        else:
            self._once.problem(NAME, "cannot push; what is not taken is lost", facts={**facts, "error": why})


def _exporter(target: HttpTarget) -> OTLPMetricExporter:
    """Return the official exporter.

    Raises ValueError for a file with a password or token that cannot be used, and OSError.
    """
    return OTLPMetricExporter(
        endpoint=target.url,
        certificate_file=target.ca_file,
        client_key_file=target.key_file,
        client_certificate_file=target.cert_file,
        headers=target.authorization(),
        timeout=target.timeout,
        compression=Compression.Gzip,
    )
