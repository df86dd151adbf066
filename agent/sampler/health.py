"""The agent's own series: each backend's duration, outcome, age and calls, the ticks, the worker."""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass, field

from agent.backends.protocol import LaneSample
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnSeries
from agent.model import Backend, BackendReport, Gap, Lane, Node, Outcome, Reading, Reason, Series
from agent.sampler.backend_runner import Read
from agent.sampler.settings import Settings

AGE = BY_NAME["coldplate_backend_age_seconds"]


@dataclass(slots=True)
class _Record:
    outcome: Outcome = Outcome.ABSENT
    detail: str = ""
    reason: Reason | None = None
    """Why a read of the main process failed; None while it does not, and for the devices."""
    duration: float = 0.0
    good_at: float | None = None
    calls: int = 0
    reads: Tally[str] = field(default_factory=Tally)
    """Reads by the outcome's value."""
    slowest: dict[str, float] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)

    @property
    def took(self) -> float:
        """Seconds of the last read; for the devices, those of the slowest of them."""
        return max(self.slowest.values()) if self.slowest else self.duration


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """What the sampling loop knows of itself at a tick; None where there is no such thing."""

    ticks: int = 0
    ticks_missed: int = 0
    worker_up: bool | None = None
    worker_restarts: int = 0
    worker_garbage: int = 0


class Health:
    """Remembers how each backend's reads ended."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self.reading = OwnSeries().reading
        """A reading of one of the agent's own rows."""

    def enter(self, read: Read) -> None:
        """Take in how a read ended."""
        record = self._records.setdefault(read.backend, _Record())
        record.outcome, record.detail = read.outcome, read.detail
        record.reason = read.reason if read.outcome is Outcome.FAILED else None
        record.duration = read.duration
        record.calls += read.calls
        record.reads[read.outcome.value] += 1
        if read.outcome is Outcome.OK:
            record.good_at = read.mono

    def overdue(self, backend: str, detail: str) -> None:
        """Note that a read does not come back. It counts as a read when it does."""
        record = self._records.setdefault(backend, _Record())
        record.outcome, record.detail, record.reason = Outcome.FAILED, detail, Reason.TIMEOUT

    def unheard(self) -> dict[str, list[Gap]]:
        """A gap for each backend that fails and never gave a reading which could be missing."""
        return {
            name: [Gap(AGE, Backend(name), record.reason, record.detail)]
            for name, record in self._records.items()
            if record.reason is not None and record.good_at is None
        }

    def enter_lane(self, backend: str, sample: LaneSample) -> None:
        """Take in one lane of one device; the backend's duration is that of its slowest device's last sample."""
        record = self._records.setdefault(backend, _Record())
        record.outcome, record.detail = Outcome.OK, ""
        record.calls += sample.calls
        record.reads[Outcome.OK.value] += 1
        if record.good_at is None or sample.mono > record.good_at:
            record.good_at = sample.mono
        if sample.lane is Lane.FAST:
            record.slowest[sample.channel] = sample.duration

    def opened(self, backend: str) -> None:
        """A worker opened its source anew: what its devices took before says nothing now."""
        self.outcome(backend, Outcome.OK, "")
        self._records[backend].slowest.clear()

    def outcome(self, backend: str, outcome: Outcome, detail: str) -> None:
        """Note an outcome that no read brought, such as a driver that is not there."""
        record = self._records.setdefault(backend, _Record())
        record.outcome, record.detail = outcome, detail
        if outcome is not Outcome.OK:
            record.reads[outcome.value] += 1

    def reports(self, gaps: dict[str, list[Gap]]) -> tuple[BackendReport, ...]:
        """One report for each backend; `gaps` by backend."""
        return tuple(
            BackendReport(name, record.outcome, record.took, record.detail, tuple(gaps.get(name, ())), record.calls)
            for name, record in sorted(self._records.items())
        )

    def backend_readings(self, now: float) -> list[Reading]:
        """Each backend's series; a backend without hardware has its info series only."""
        rows: list[Reading] = []
        for name, record in self._records.items():

            def show(metric: str, value: float, outcome: str = "", name: str = name, record: _Record = record) -> None:
                key = metric + outcome
                series = record.series.get(key)
                if series is None:
                    labels = (("outcome", outcome),) if outcome else ()
                    series = record.series[key] = Series(BY_NAME[metric], Backend(name), labels)
                rows.append(Reading(series, value))

            show("coldplate_backend_info", 1, record.outcome.value)
            if record.outcome is not Outcome.ABSENT:
                show("coldplate_backend_up", int(record.outcome is Outcome.OK))
                show("coldplate_backend_duration_seconds", record.took)
                show("coldplate_driver_calls_total", record.calls)
                if record.good_at is not None:
                    show("coldplate_backend_age_seconds", max(now - record.good_at, 0.0))
            for outcome, count in record.reads.items():
                show("coldplate_backend_reads_total", count, outcome)
        return rows

    def loop_readings(self, facts: LoopFacts, settings: Settings) -> list[Reading]:
        """The series of the sampling loop and its worker."""
        node = Node()
        rows = [
            self.reading("coldplate_ticks_total", node, facts.ticks),
            self.reading("coldplate_ticks_missed_total", node, facts.ticks_missed),
            self.reading("coldplate_sampling_interval_seconds", node, settings.fast, (("lane", "fast"),)),
            self.reading("coldplate_sampling_interval_seconds", node, settings.slow, (("lane", "slow"),)),
            self.reading("coldplate_sampling_interval_seconds", node, settings.cold, (("lane", "cold"),)),
        ]
        if facts.worker_up is not None:
            rows.append(self.reading("coldplate_worker_up", node, int(facts.worker_up)))
            rows.append(self.reading("coldplate_worker_restarts_total", node, facts.worker_restarts))
        if facts.worker_garbage:
            worker = Backend("worker")
            cause = (("cause", "garbage"),)
            rows.append(self.reading("coldplate_readings_rejected_total", worker, facts.worker_garbage, cause))
        return rows
