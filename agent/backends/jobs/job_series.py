"""The series of jobs, and the energy of each job."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from agent.backends.jobs.gpu_allocations import UNKNOWN, WHOLE, Allocation, GpuSlot
from agent.backends.jobs.job import Job, Key
from agent.catalogue import BY_NAME
from agent.model import Backend, Entity, Gap, Gpu, Metric, Node, Reading, Reason, Series

ENERGY_KEEP_SECONDS = 600.0
"""Seconds for which a job that holds no GPU is remembered: between two steps of a job nothing may run."""


class JobEnergy:
    """Joules by job: the growth of its GPUs' energy counters while it holds them alone.

    The energy of a GPU shared by several jobs is attributed to none of them, nor is what a GPU used before the job was
    seen on it: the sum is never too high.
    """

    def __init__(self) -> None:
        self.totals: dict[Key, float] = {}
        """Joules of each job so far, of those that ever had a GPU with a counter to themselves."""
        self._last: dict[Gpu, tuple[Key, float]] = {}
        self._last_seen: dict[Key, float] = {}
        self.started: dict[Key, float] = {}
        """When jobs began, in seconds since the epoch, as far as that is known."""

    def add_energy(self, owners: Mapping[Gpu, Key], energy: Mapping[Gpu, float]) -> None:
        """Take in which job has which GPU to itself now, and the counters (joules; a GPU without one is left out)."""
        last: dict[Gpu, tuple[Key, float]] = {}
        for gpu, key in owners.items():
            before = self._last.get(gpu)
            same = before is not None and before[0] == key
            joules = energy.get(gpu)
            if joules is None:
                if before is not None and same:
                    last[gpu] = before  # the counter will show what was used meanwhile
                continue
            self.totals.setdefault(key, 0.0)
            if before is not None and same and joules > before[1]:
                self.totals[key] += joules - before[1]
            last[gpu] = key, joules
        self._last = last

    def remember_jobs(self, keys: Mapping[Key, float | None], mono: float) -> None:
        """Remember these jobs, and the earliest start known of each; forget those long gone."""
        for key, started in keys.items():
            self._last_seen[key] = mono
            earliest = self.started.get(key)
            if started is not None and (earliest is None or started < earliest):
                self.started[key] = started
        for key in [key for key, at in self._last_seen.items() if mono - at > ENERGY_KEEP_SECONDS]:
            del self._last_seen[key]
            self.totals.pop(key, None)
            self.started.pop(key, None)


HOLDER = BY_NAME["coldplate_gpu_job_info"]
SHARER = BY_NAME["coldplate_gpu_shared_job_info"]
MEMORY_OF, SM_OF = BY_NAME["coldplate_gpu_job_memory_used_bytes"], BY_NAME["coldplate_gpu_job_sm_ratio"]
FACTS_OF = BY_NAME["coldplate_job_info"]
START = BY_NAME["coldplate_job_start_timestamp_seconds"]
GPUS = BY_NAME["coldplate_job_gpus"]
PROCESSES = BY_NAME["coldplate_job_processes"]
ENERGY = BY_NAME["coldplate_job_energy_joules_total"]
UP = BY_NAME["coldplate_backend_up"]
ENERGY_OF = BY_NAME["coldplate_gpu_energy_joules_total"]


@lru_cache(maxsize=8_192)  # jobs come and go
def _series(row: Metric, entity: Entity, labels: tuple[str, ...]) -> Series:
    return Series(row, entity, tuple(zip(row.labels, labels, strict=True)))


class JobReadings:
    """The readings and gaps of one poll."""

    def __init__(self) -> None:
        self._readings: dict[Series, Reading] = {}
        self._gaps: dict[tuple[Metric, Entity, Reason], Gap] = {}

    @property
    def readings(self) -> list[Reading]:
        return list(self._readings.values())

    @property
    def gaps(self) -> list[Gap]:
        return list(self._gaps.values())

    def way(self, name: str, open_: bool) -> None:
        """Record whether one of the sources of job information is available."""
        self._add(UP, Backend(name), (), int(open_))

    def miss(self, gap: Gap) -> None:
        """Add a gap: one for each metric, entity and reason, with the detail of the first."""
        self._gaps.setdefault((gap.metric, gap.entity, gap.reason), gap)

    def holders(self, slot: GpuSlot, jobs: Sequence[tuple[Job, str]], *, held: bool) -> None:
        """Show the jobs of one slot, each with its container there, as one series per slot, so that no join breaks.

        `held` says that none of their processes is on it.
        """
        is_held = "true" if held else "false"
        if len(jobs) == 1:
            job, container = jobs[0]
            labels = (*job.key, job.user, job.name, slot.mig, "false", is_held, job.namespace, job.pod, container)
            self._add(HOLDER, slot.gpu, labels, 1)
            return
        # mig="0" says that one job has the whole GPU: here none has.
        mig = UNKNOWN if slot.mig == WHOLE else slot.mig
        self._add(HOLDER, slot.gpu, ("", "", "", "", mig, "true", is_held, "", "", ""), 1)
        for job, container in jobs:
            pod = (job.namespace, job.pod, container)
            self._add(SHARER, slot.gpu, (*job.key, job.user, job.name, slot.mig, *pod), 1)

    def share(self, slot: GpuSlot, job: Job, container: str, usage: tuple[int | None, float | None]) -> None:
        """Show the memory in bytes and the share of SM time that a job uses on one slot, as far as they are known."""
        labels = (*job.key, job.user, job.name, slot.mig, job.namespace, job.pod, container)
        for row, value in zip((MEMORY_OF, SM_OF), usage, strict=True):
            if value is not None:
                self._add(row, slot.gpu, labels, value)

    def job(self, summary: Allocation, started: float | None, joules: float | None) -> None:
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
        series = _series(row, entity, labels)
        self._readings.setdefault(series, Reading(series, value))
