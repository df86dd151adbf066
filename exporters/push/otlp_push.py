"""Pushes snapshots to an OpenTelemetry collector over HTTP, by the official exporter.

Nothing is kept for later: the exporter repeats a request for as long as its timeout, and then the samples are lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from agent.lib.http_target import HttpTarget
from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from agent.model import Instant, Snapshot
from exporters.pages import age_of
from exporters.push.otlp_metrics import MetricsMaker
from exporters.push.push_queue import EXPIRED, PushFigures

log = logging.getLogger("coldplate.push")

NAME = "otlp"


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where to, how often in seconds, and whose metrics they are."""

    target: HttpTarget
    interval: float
    version: str
    resource: Mapping[str, str] = field(default_factory=dict)


class ExporterLog(logging.Handler):
    """Keeps what the exporter would log at each failure: the push says it once."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


class OtlpPush:
    """One collector. `latest` gives the newest snapshot with the series that are shown, and `clock` the time."""

    def __init__(
        self,
        settings: OtlpSettings,
        latest: Callable[[], Snapshot | None],
        clock: Callable[[], Instant],
        threads: Threads,
    ) -> None:
        self.settings, self._latest, self._clock, self._threads = settings, latest, clock, threads
        self.figures = PushFigures(NAME, bytes=None, pending=None)
        self._maker = MetricsMaker(settings.resource, settings.version)
        self._exporter: OTLPMetricExporter | None = None
        self._told = ExporterLog()
        self._last: Snapshot | None = None
        self._stopping = threading.Event()
        self._once = LogOnce(log)
        self._thread: KeptThread | None = None

    def start(self) -> None:
        """Begin to push."""
        theirs = logging.getLogger("opentelemetry")
        theirs.handlers, theirs.propagate = [self._told], False
        self._thread = self._threads.begin("push-otlp", self._run)

    def stop(self, seconds: float) -> None:
        """Stop; a request in flight has `seconds` to end."""
        self._stopping.set()
        if self._thread is not None and not self._thread.join(seconds) and self._exporter is not None:
            self._exporter.shutdown()  # ends the pauses between its attempts

    def _run(self) -> None:
        due = self._clock().mono
        while not self._stopping.wait(max(due - self._clock().mono, 0.0)):
            now = self._clock()
            snapshot = self._latest()
            if snapshot is None:
                due = now.mono + min(self.settings.interval, 1.0)
                continue
            self._push(snapshot, now)
            missed = (self._clock().mono - due) // self.settings.interval
            due += (missed + 1) * self.settings.interval
        self._forget()

    def _push(self, snapshot: Snapshot, now: Instant) -> None:
        age = age_of(snapshot, now.mono)
        new = self._last is None or snapshot.sequence != self._last.sequence
        self._last = snapshot
        data = self._maker.make(snapshot, age, now.wall) if new else self._maker.only_age(age, now.wall)
        samples = _count(data)
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
        self._told.last = ""
        try:
            if self._exporter is None:
                self._exporter = _exporter(self.settings.target)
            if self._exporter.export(data) is MetricExportResult.SUCCESS:
                return None
            why = self._told.last or "the exporter does not say why"
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
        facts = {"push": NAME, "url": self.settings.target.shown}
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


def _count(data: MetricsData) -> int:
    return sum(
        len(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )
