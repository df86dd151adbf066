"""The agent's own series: each backend's duration, outcome, age and calls, the ticks, the worker, and what is missing.

A read that has been in flight for too long counts as failed. Every metric that has gaps has a series of its own.
"""

import logging
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from agent.backends.protocol import LaneSample
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.wording import no_answer_for
from agent.model import (
    EMPTY_FRAME,
    LANES,
    Backend,
    BackendReport,
    Entity,
    Frame,
    Gap,
    Lane,
    Metric,
    NvLink,
    Outcome,
    Reason,
)
from agent.sampler.backend_runner import Flight, Read
from agent.sampler.schedule import Settings

log = logging.getLogger("coldplate.backend")


Source = tuple[str, Sequence[Gap]]
"""A backend, and some gaps of it."""


class MissingMetrics:
    """Gathers gaps. They are mostly those of the last snapshot, and then the same result is returned again."""

    def __init__(self) -> None:
        self._own = OwnSeries()
        self._sources: list[Source] = []
        self._made: tuple[Mapping[str, tuple[Gap, ...]], Frame] = ({}, EMPTY_FRAME)

    def gather(self, sources: list[Source]) -> tuple[Mapping[str, tuple[Gap, ...]], Frame]:
        """Return all gaps by backend, and their coldplate_metric_missing; one series for all links of a GPU."""
        if sources != self._sources:
            gaps: dict[str, tuple[Gap, ...]] = {}
            for backend, backend_gaps in sources:
                gaps[backend] = (*gaps.get(backend, ()), *backend_gaps)
            self._sources, self._made = sources, (gaps, self._own.frame(_missing(sources)))
        return self._made


def _missing(sources: Sequence[Source]) -> Iterator[OwnReading]:
    """Yield each reading once: two lanes of a device may miss the same metric."""
    reported: dict[tuple[Metric, Entity, Reason], None] = {}
    for _, gaps in sources:
        for gap in gaps:
            device = gap.entity.gpu if isinstance(gap.entity, NvLink) else gap.entity
            reported[gap.metric, device, gap.reason] = None
    for metric, entity, reason in reported:
        labels = (("metric", metric.name), ("reason", reason.value))
        yield OwnReading("coldplate_metric_missing", 1, labels, entity)


AGE = BY_NAME["coldplate_backend_age_seconds"]


class _Record(Struct):
    backend: Backend
    outcome: Outcome = Outcome.ABSENT
    detail: str = ""
    reason: Reason | None = None
    """Why a read of the main process failed; None while it does not, and for the devices."""
    duration: float = 0.0
    good_at: float | None = None
    calls: int = 0
    reads: Tally[str] = field(default_factory=Tally)
    """Reads by the outcome's value."""
    seconds: defaultdict[Lane, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that reads took, by lane."""
    slowest: dict[str, float] = field(default_factory=dict)

    @property
    def took(self) -> float:
        """Seconds of the last read; for the devices, those of the slowest of them."""
        return max(self.slowest.values()) if self.slowest else self.duration

    def readings(self, now: float) -> Iterator[OwnReading]:
        """Yield the backend's own readings. One without hardware has only its info and its reads."""
        backend = self.backend
        yield OwnReading("coldplate_backend_info", 1, (("outcome", self.outcome.value),), backend)
        if self.outcome is not Outcome.ABSENT:
            yield OwnReading("coldplate_backend_up", int(self.outcome is Outcome.OK), (), backend)
            yield OwnReading("coldplate_backend_duration_seconds", self.took, (), backend)
            yield OwnReading("coldplate_backend_calls_total", self.calls, (), backend)
            if self.good_at is not None:
                yield OwnReading("coldplate_backend_age_seconds", max(now - self.good_at, 0.0), (), backend)
        for outcome, count in self.reads.items():
            yield OwnReading("coldplate_backend_reads_total", count, (("outcome", outcome),), backend)
        for lane, seconds in self.seconds.items():
            yield OwnReading("coldplate_backend_read_seconds_total", seconds, (("sampling_lane", lane.value),), backend)


class LoopFacts(Struct, frozen=True):
    """What the sampling loop knows of itself at a tick; None for what does not exist."""

    ticks: int = 0
    ticks_missed: int = 0
    worker_up: bool | None = None
    worker_restarts: int = 0
    worker_garbage: int = 0
    paused_until: float | None = None
    """Until when the driver is released, in seconds since the epoch."""
    flights: Mapping[str, Flight] = {}
    """The reads that the backends of the main process have in flight."""

    def readings(self, settings: Settings) -> Iterator[OwnReading]:
        """Yield the readings of the loop and its worker."""
        yield OwnReading("coldplate_ticks_total", self.ticks)
        yield OwnReading("coldplate_ticks_missed_total", self.ticks_missed)
        for lane in LANES:
            yield OwnReading(
                "coldplate_sampling_interval_seconds", settings.period(lane), (("sampling_lane", lane.value),)
            )
        if self.worker_up is not None:
            yield OwnReading("coldplate_worker_up", int(self.worker_up))
            yield OwnReading("coldplate_worker_restarts_total", self.worker_restarts)
        if self.worker_garbage:
            cause = (("cause", "invalid"),)
            yield OwnReading("coldplate_readings_rejected_total", self.worker_garbage, cause, Backend("worker"))
        if self.paused_until is not None:
            yield OwnReading("coldplate_driver_pause_end_timestamp_seconds", self.paused_until)


class Health:
    """Remembers the outcomes of each backend's reads."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._silent_since: dict[str, float] = {}
        self._own = OwnSeries()

    def record_read(self, read: Read) -> None:
        """Take in the outcome of a read."""
        record = self._record(read.backend)
        record.outcome, record.detail = read.outcome, read.detail
        record.reason = read.reason if read.outcome is Outcome.FAILED else None
        record.duration = read.duration
        record.calls += read.sample.calls
        record.reads[read.outcome.value] += 1
        record.seconds[read.lane] += read.duration
        if read.outcome is Outcome.OK:
            record.good_at = read.mono

    def check_flights(self, flights: Mapping[str, Flight], now: float, timeout: float) -> dict[str, str]:
        """Return a text for each backend with a read in flight for too long: how long it has been silent.

        Times in monotonic seconds. Such a read counts as a read when it ends. The timeout is the same for all lanes: a
        thread that hangs in the cold lane keeps the fast one waiting.
        """
        late = {name: flight for name, flight in flights.items() if now - flight.since > timeout}
        for name in [name for name in self._silent_since if name not in late]:
            seconds = round(now - self._silent_since.pop(name), 1)
            log.info("backend answers again", extra={"facts": {"backend": name, "seconds": seconds}})
        silent = {name: no_answer_for(now - flight.since) for name, flight in late.items()}
        for name, flight in late.items():
            if name not in self._silent_since:
                facts = {"backend": name, "lane": flight.lane.value, "seconds": round(now - flight.since, 1)}
                log.warning("backend does not answer", extra={"facts": facts})
            self._silent_since.setdefault(name, flight.since)
            record = self._record(name)
            record.outcome, record.detail, record.reason = Outcome.FAILED, silent[name], Reason.TIMEOUT
        return silent

    @property
    def unanswered(self) -> dict[str, float]:
        """Since when the backends that do not answer have been silent, in monotonic seconds. For any thread."""
        return dict(self._silent_since)

    def unheard(self) -> dict[str, list[Gap]]:
        """Return a gap for each backend that fails and has never given a reading that could be missing."""
        return {
            name: [Gap(AGE, Backend(name), record.reason, record.detail)]
            for name, record in self._records.items()
            if record.reason is not None and record.good_at is None
        }

    def enter_lane(self, backend: str, sample: LaneSample) -> None:
        """Take in one lane of one device; the backend's duration is that of its slowest device's last sample."""
        record = self._record(backend)
        record.outcome, record.detail = Outcome.OK, ""
        record.calls += sample.calls
        record.reads[Outcome.OK.value] += 1
        record.seconds[sample.lane] += sample.duration
        if record.good_at is None or sample.mono > record.good_at:
            record.good_at = sample.mono
        if sample.lane is Lane.FAST:
            record.slowest[sample.channel] = sample.duration

    def opened(self, backend: str) -> None:
        """Forget, as a worker opened its source again, the durations of its devices from before."""
        self.outcome(backend, Outcome.OK, "")
        self._records[backend].slowest.clear()

    def outcome(self, backend: str, outcome: Outcome, detail: str) -> None:
        """Record an outcome without a read, such as a missing driver."""
        record = self._record(backend)
        record.outcome, record.detail = outcome, detail
        if outcome is not Outcome.OK:
            record.reads[outcome.value] += 1

    def reports(self, gaps: Mapping[str, tuple[Gap, ...]]) -> tuple[BackendReport, ...]:
        """Return one report for each backend; `gaps` by backend."""
        return tuple(
            BackendReport(name, record.outcome, record.took, record.detail, gaps.get(name, ()), record.calls)
            for name, record in sorted(self._records.items())
        )

    def _record(self, backend: str) -> _Record:
        record = self._records.get(backend)
        if record is None:
            record = self._records[backend] = _Record(Backend(backend))
        return record

    def frame(self, now: float, facts: LoopFacts, settings: Settings) -> Frame:
        """Return the series of each backend, and those of the sampling loop and its worker."""
        of_backends = (reading for record in self._records.values() for reading in record.readings(now))
        return self._own.frame((*of_backends, *facts.readings(settings)))
