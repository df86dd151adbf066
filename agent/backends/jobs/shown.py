"""The series of the jobs backend: each is created once, and dropped with its job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.backends.jobs.gpu_slots import UNKNOWN, WHOLE, Slot
from agent.backends.jobs.holders import Summary
from agent.backends.jobs.job import Job
from agent.catalogue import metric
from agent.model import Backend, Entity, Gap, Metric, Node, Reading, Reason, Series

HOLDER = metric("coldplate_gpu_job_info")
SHARER = metric("coldplate_gpu_shared_job_info")
FACTS_OF = metric("coldplate_job_info")
START = metric("coldplate_job_start_timestamp_seconds")
GPUS = metric("coldplate_job_gpus")
PROCESSES = metric("coldplate_job_processes")
ENERGY = metric("coldplate_job_energy_joules_total")
UP = metric("coldplate_backend_up")
ENERGY_OF = metric("coldplate_gpu_energy_joules_total")

SeriesKey = tuple[str, Entity, tuple[str, ...]]


class ShownJobs:
    """What one look shows. `gaps` are those of the last completed look."""

    def __init__(self) -> None:
        self._kept: dict[SeriesKey, Series] = {}
        self._used: dict[SeriesKey, Series] = {}
        self._readings: list[Reading] = []
        self.gaps: list[Gap] = []

    def begin(self) -> None:
        self._used, self._readings, self.gaps = {}, [], []

    def end(self, more: Iterable[Reading]) -> list[Reading]:
        """Complete this look: all its readings, and these."""
        self._kept = self._used
        return [*self._readings, *more]

    def way(self, name: str, open_: bool) -> None:
        """Record whether one of the sources of job information is available."""
        self._add(UP, Backend(name), (), int(open_))

    def miss(self, gap: Gap) -> None:
        """Add a gap: one for each metric, entity and reason, with the detail of the first."""
        if all((each.metric, each.entity, each.reason) != (gap.metric, gap.entity, gap.reason) for each in self.gaps):
            self.gaps.append(gap)

    def holders(self, slot: Slot, jobs: Sequence[tuple[Job, str]]) -> None:
        """Show the jobs of one slot, each with its container there, as one series per slot, so that no join breaks."""
        if len(jobs) == 1:
            job, container = jobs[0]
            labels = (*job.key, job.user, job.name, slot.mig, "false", job.namespace, job.pod, container)
            self._add(HOLDER, slot.gpu, labels, 1)
            return
        # mig="0" says that one job has the whole GPU: here none has.
        mig = UNKNOWN if slot.mig == WHOLE else slot.mig
        self._add(HOLDER, slot.gpu, ("", "", "", "", mig, "true", "", "", ""), 1)
        for job, container in jobs:
            pod = (job.namespace, job.pod, container)
            self._add(SHARER, slot.gpu, (*job.key, job.user, job.name, slot.mig, *pod), 1)

    def job(self, summary: Summary, started: float | None, joules: float | None) -> None:
        """Show the facts of one job."""
        job = summary.job
        facts = (job.user, job.name, job.account, job.partition, job.array, job.namespace, job.pod)
        self._add(FACTS_OF, Node(), (*job.key, *facts), 1)
        self._add(GPUS, Node(), job.key, len(summary.gpus))
        self._add(PROCESSES, Node(), job.key, len(summary.pids))
        who = f"{job.scheduler} job {job.id}"
        if started is None:
            self.miss(Gap(START, Node(), Reason.UNSUPPORTED, f"{who} has no process that shows when it started"))
        else:
            self._add(START, Node(), job.key, started)
        if joules is None:
            self.miss(Gap(ENERGY, Node(), Reason.UNSUPPORTED, f"{who} has no GPU of its own with an energy counter"))
        else:
            self._add(ENERGY, Node(), job.key, joules)

    def _add(self, row: Metric, entity: Entity, labels: tuple[str, ...], value: float) -> None:
        key = (row.name, entity, labels)
        series = self._used.get(key)
        if series is not None:
            return  # never the same series twice
        series = self._kept.get(key)
        if series is None:
            series = Series(row, entity, tuple(zip(row.labels, labels, strict=True)))
        self._used[key] = series
        self._readings.append(Reading(series, value))
