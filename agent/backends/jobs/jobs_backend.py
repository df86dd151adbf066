"""The jobs backend: from the processes that the driver shows on each GPU to the jobs that hold the GPUs.

Missing information only removes its own part: a process whose environment is hidden is
known by its cgroup, a pod without a name by its uid. coldplate_backend_up of
`jobs_procfs`, `jobs_environ`, `jobs_kubelet` and `jobs_mapping` shows which sources are unavailable. A read denied for
lack of a permission is a gap of coldplate_job_info, whose labels are then empty, and is logged once.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from agent.backends.jobs.cgroup import CgroupOwner
from agent.backends.jobs.environments import AskVariables, UserNames, system_name
from agent.backends.jobs.gpu_allocations import (
    KUBERNETES,
    MIG_INFO,
    AllocationTable,
    GpuSlot,
    GpuSlots,
    PodNames,
    add_mapped,
    add_pods,
    mig_slots,
    usage_of,
)
from agent.backends.jobs.job import Job, Key, Scheduler, is_invalid_job_id
from agent.backends.jobs.job_files import (
    DEVICE_FOLDER,
    GPUSTAT,
    AttributionProblems,
    MappingEntry,
    MappingFiles,
    ReadFile,
    TimedReader,
    read_file,
    read_minors,
    scheduler_of,
)
from agent.backends.jobs.job_series import ENERGY_OF, FACTS_OF, HOLDER, JobEnergy, JobReadings
from agent.backends.jobs.kubelet import SOCKETS, Kubelet
from agent.backends.jobs.last_processes import LastProcesses
from agent.backends.jobs.pods import POD_LOGS as PODS
from agent.backends.jobs.pods import PodDevice, PodDeviceOwners, PodLogDirectories
from agent.backends.jobs.process_table import GpuProcessFacts, ProcessTable
from agent.backends.jobs.schedulers import SCHEDULERS
from agent.backends.jobs.slurm_steps import SlurmSteps, gpu_numbers
from agent.backends.protocol import BackendSample, GpuProcess
from agent.broker.asking import BrokerClient
from agent.config.schema import ConfigError, JobsConfig
from agent.lib.logs import LogOnce
from agent.model import Gap, Gpu, Instant, Lane, Node, Reading, Reason

SOURCES = (*(scheduler.name for scheduler in SCHEDULERS), "cgroup", "mapping")
"""`cgroup` stands for processes without a scheduler: containers, systemd units, login sessions."""
ALL, SLURM = "all", "slurm"
CGROUPS = "/sys/fs/cgroup"


def check_jobs(jobs: JobsConfig) -> None:
    """Refuse sources and schedulers that do not exist. Raises ConfigError."""
    schedulers = tuple(scheduler.name for scheduler in SCHEDULERS)
    for key, names, allowed in (
        ("sources", jobs.sources, (ALL, *SOURCES)),
        ("trust_environment", jobs.trust_environment, schedulers),
    ):
        for name in names:
            if name not in allowed:
                raise ConfigError(f"jobs.{key}: {name!r} is unknown; use any of {', '.join(allowed)}")


def is_enabled(source: str, sources: Sequence[str]) -> bool:
    return ALL in sources or source in sources


log = logging.getLogger("coldplate.jobs")


def unify_job_ids(processes: Mapping[int, GpuProcessFacts]) -> dict[int, GpuProcessFacts]:
    """Return the processes with one id per cgroup: the one on which their environments agree, or else the cgroup's own.

    HTCondor's and LSF's cgroups leave a part of the id to the environment, which may be hidden for some of the
    processes.
    """
    ids_by_cgroup: dict[tuple[str, str], set[str]] = {}
    for process in processes.values():
        if process.job is not None and process.within is not None:
            ids_by_cgroup.setdefault(process.within, set()).update({process.job.id} - {process.within[1]})
    return {pid: _called(process, ids_by_cgroup) for pid, process in processes.items()}


def _called(process: GpuProcessFacts, ids_by_cgroup: Mapping[tuple[str, str], set[str]]) -> GpuProcessFacts:
    if process.job is None or process.within is None:
        return process
    ids = ids_by_cgroup[process.within]
    job = next(iter(ids)) if len(ids) == 1 else process.within[1]
    return process if job == process.job.id else replace(process, job=replace(process.job, id=job))


NOT_IN_SHARES = (
    "the kubelet lists shares of HAMi (UUID-NUMBER), which do not say which GPU a pod got: that is in its annotation "
    "hami.io/vgpu-devices-allocated, in the API server; pods are shown on the GPUs that their processes use"
)

MAX_JOBS = 16
"""Most jobs that are shown for one GPU."""
MAX_PROCESSES = 256
"""Most processes of one GPU that are looked into."""

CONTRADICTED = (
    "the mapping files leave out a GPU that SLURM_JOB_GPUS or SLURM_STEP_GPUS names, and do not count; if their names "
    "are the numbers of /dev/nvidia*, set jobs.mapping_names: minor"
)


READ = frozenset({MIG_INFO, ENERGY_OF.name})
"""The rows of the last snapshot that are read: for MIG instances, and for the energy of jobs."""


class JobsBackend:
    """Implements `Backend`.

    `processes` gives every GPU of the node with its processes, None for one that cannot list them; `readings` those of
    the rows in READ. Both are called in the backend's own thread. `ask` is for environments that may not be read,
    `kubelet` are the sockets to try, `pod_logs` is where pods' logs are, `lookup` names a user by number.
    """

    name = "jobs"
    lanes = frozenset({Lane.SLOW})
    shortest = 5.0

    def __init__(
        self,
        procfs: Path | str,
        processes: Callable[[], Mapping[Gpu, Sequence[GpuProcess] | None]],
        readings: Callable[[], Iterable[Reading]] = tuple,
        *,
        sources: Sequence[str] = (ALL,),
        mapping_dir: str | None = None,
        mapping_by_minor: bool = False,
        trust_environment: Sequence[str] = (),
        ask: AskVariables | None = None,
        kubelet: Sequence[str] = SOCKETS,
        pod_logs: str = PODS,
        gpustat: str = GPUSTAT,
        cgroups: str = CGROUPS,
        lookup: Callable[[int], str] = system_name,
        read: ReadFile = read_file,
        schedulers: Sequence[Scheduler] = SCHEDULERS,
    ) -> None:
        """`mapping_dir` is dcgm-exporter's --hpc-job-mapping-dir; `gpustat` is read as well.

        `mapping_by_minor` says that numbers in the names of their files are those of device files, not indices.

        `cgroups` is where they are mounted.

        `trust_environment` names schedulers whose variables count in every process, for nodes where neither cgroups
        nor a unit of the scheduler show what it started. Every user who can log in there can name any job.
        """
        enabled = tuple(s for s in schedulers if is_enabled(s.name, sources))
        self._processes = processes
        self._last_processes = LastProcesses()
        self._readings = readings
        self._problems = AttributionProblems()
        self._users = UserNames(lookup)
        self._procfs = os.fspath(procfs)
        ticks = os.sysconf("SC_CLK_TCK")
        self._reader = TimedReader(read)
        self._table = ProcessTable(
            self._procfs, enabled, is_enabled("cgroup", sources), trust_environment, read=self._reader,
            ask=ask or BrokerClient().variables, users=self._users, problems=self._problems, ticks=ticks,
            job_id_of=self._job_id_of,
        )  # fmt: skip
        self._mapping_by_minor = mapping_by_minor
        self._kubelet = Kubelet(kubelet) if is_enabled(KUBERNETES, sources) else None
        directories = [gpustat] if mapping_dir is None else [mapping_dir, gpustat]
        self._files = MappingFiles(directories if is_enabled("mapping", sources) else (), self._reader, self._problems)
        self._steps = SlurmSteps(cgroups, self._procfs, self._reader) if is_enabled(SLURM, sources) else None
        self._pod_logs = PodLogDirectories(pod_logs)
        self._names = PodNames()
        self._pod_owners = PodDeviceOwners()
        self._once = LogOnce(log)
        self._barred: dict[str, str] = {}
        """The detail of each source that is barred for lack of a permission, as of the last look."""
        self._ledger = JobEnergy()
        self._job_readings = JobReadings()

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - it has one lane
        """Return who holds the GPUs now. Nothing in a process or a file makes it raise."""
        self._reader.mono = now.mono
        listed = self._processes()
        running = self._last_processes.complete(listed)
        latest = list(self._readings())
        devices = GpuSlots(running, mig_slots(latest), lambda: read_minors(self._procfs, self._reader))
        self._job_readings = JobReadings()
        self._barred = {}
        reads_before = self._table.reads + self._files.reads
        board, processes, granted = self._by_processes(running, devices, now.mono)
        self._add_pods(board, processes, devices, now.mono)
        self._add_mapped(board, granted, devices, now.mono)
        board.resolve_unknown_instances()
        for slot in board.limit(MAX_JOBS):
            self._problems.record("too_many", f"GPU {slot.gpu.index}: more than {MAX_JOBS} jobs; the rest are ignored")
        self._show(board, {gpu: p or () for gpu, p in listed.items()}, latest, now.mono)
        if self._barred:
            self._job_readings.miss(Gap(FACTS_OF, Node(), Reason.DENIED, "; ".join(self._barred.values())))
        calls = self._table.reads + self._files.reads - reads_before
        readings = [*self._job_readings.readings, *self._problems.readings()]
        return BackendSample(readings, self._job_readings.gaps, calls=calls)

    def close(self) -> None:
        self._reader.close()
        self._users.close()
        if self._kubelet is not None:
            self._kubelet.close()

    def _job_id_of(self, where: CgroupOwner) -> str:
        """Return the id of the job that a scheduler's cgroup names: Slurm may name it in another way than by number."""
        if where.scheduler != SLURM or where.id.isdigit() or self._steps is None:
            return where.id
        return self._steps.job_number(where.top) or where.id

    def _by_processes(
        self, running: Mapping[Gpu, Sequence[GpuProcess]], devices: GpuSlots, mono: float
    ) -> tuple[AllocationTable, dict[int, GpuProcessFacts], Mapping[Key, set[GpuSlot]]]:
        """Return the jobs of processes and steps, the processes, and the slots that the steps' variables name."""
        slots_by_pid: dict[int, list[GpuSlot]] = {}
        for gpu, processes in running.items():
            if len(processes) > MAX_PROCESSES:
                text = f"GPU {gpu.index}: {len(processes)} processes; only the first {MAX_PROCESSES} are examined"
                self._problems.record("too_many", text)
            for gpu_process in processes[:MAX_PROCESSES]:
                if gpu_process.pid > 0:
                    slots_by_pid.setdefault(gpu_process.pid, []).append(devices.of_process(gpu, gpu_process.instance))
        steps = self._steps.running_steps() if self._steps is not None and not devices.is_divided else {}
        facts_by_pid = unify_job_ids(self._table.read_processes(sorted({*slots_by_pid, *steps}), mono))
        for gpu, pid in self._last_processes.remove_ended(facts_by_pid):
            slots_by_pid[pid] = [slot for slot in slots_by_pid.get(pid, ()) if slot.gpu != gpu]
        board = AllocationTable()
        users = {
            (slot, process.owner)
            for pid, process in facts_by_pid.items()
            if process.job and not process.serves
            for slot in slots_by_pid.get(pid, ())
        }
        for pid, process in facts_by_pid.items():
            for slot in slots_by_pid.get(pid, ()):
                if process.job is not None and not (process.serves and (slot, process.owner) in users):
                    board.add(slot, process.job, (pid,))
        self._report_hidden(slots_by_pid, facts_by_pid)
        return board, facts_by_pid, self._add_granted(board, steps, facts_by_pid, devices)

    def _add_granted(
        self,
        board: AllocationTable,
        steps: Mapping[int, str],
        processes: Mapping[int, GpuProcessFacts],
        devices: GpuSlots,
    ) -> dict[Key, set[GpuSlot]]:
        """Add the jobs to which Slurm gave GPUs on which no process computes, and return what it gave to each job."""
        granted: dict[Key, set[GpuSlot]] = {}
        free: dict[GpuSlot, list[Job]] = {}
        for pid, variable in steps.items():
            process = processes.get(pid)
            if process is None or process.job is None or process.job.scheduler != SLURM:
                continue
            for number in gpu_numbers(process.variables.get(variable, "")):
                slot = devices.find_minor(number)
                if slot is None:
                    continue
                granted.setdefault(process.job.key, set()).add(slot)
                if not board.jobs_on(slot):
                    free.setdefault(slot, []).append(process.job)
        for slot, jobs in free.items():
            for job in jobs:
                board.add(slot, job)
        return granted

    def _report_hidden(
        self, slots_by_pid: Mapping[int, Sequence[GpuSlot]], processes: Mapping[int, GpuProcessFacts]
    ) -> None:
        """Report what procfs does not show: whole processes, or their environments."""
        if slots_by_pid:
            self._job_readings.way("jobs_procfs", not self._table.missing)
        for pid, error in self._table.missing.items():
            for slot in slots_by_pid.get(pid, ()):
                self._job_readings.miss(Gap(HOLDER, slot.gpu, error.reason, error.detail))
        with_job = [process for process in processes.values() if process.job is not None]
        if with_job:
            hidden = [(process.late, process.hidden) for process in with_job if process.hidden]
            self._job_readings.way("jobs_environ", not hidden)
            unanswered, reason = min(hidden, default=(False, ""))
            self._log_source("job names", reason, denied=not unanswered)

    def _log_source(self, source: str, problem: str, denied: bool = True) -> None:
        """Record whether a protected source is available: `barred` says why it is not, "" if it is."""
        if not problem:
            self._once.over(source, "source recovered: %s", source)
            return
        if denied:
            self._barred[source] = f"{source}: {problem}"
        self._once.problem(source, "%s: %s", source, problem, facts={"missing": source})

    def _add_pods(
        self, board: AllocationTable, processes: Mapping[int, GpuProcessFacts], devices: GpuSlots, mono: float
    ) -> None:
        uids = {job.id for job in board.jobs() if job.scheduler == KUBERNETES}
        logged = self._pod_logs.names(uids)
        active = self._names.names_of(uids) | set(logged.values())
        listed = self._poll_kubelet(mono)
        contested = self._pod_owners.contested(listed)
        created = self._pod_logs.creation_times(contested) if contested else {}
        pods = self._by_slot(self._pod_owners.current(listed, active, created), devices)
        self._names.name_pods(board, pods, {pid: process.host for pid, process in processes.items()}, logged)
        add_pods(board, pods)
        named = [bool(job.pod) for job in board.jobs() if job.scheduler == KUBERNETES]
        if named and (all(named) or self._pod_logs.denied):
            self._log_source("pod names", "" if all(named) else self._pod_logs.denied)

    def _by_slot(self, listed: Iterable[PodDevice], devices: GpuSlots) -> dict[GpuSlot, list[PodDevice]]:
        pods: dict[GpuSlot, list[PodDevice]] = {}
        for entry in listed:
            slot = devices.find(entry.device)
            if is_invalid_job_id(entry.namespace) or is_invalid_job_id(entry.pod):
                name = f"{entry.namespace!r:.80}/{entry.pod!r:.80}"
                self._problems.record_once("foul_id", name, f"the kubelet reports an invalid pod name {name}")
            elif slot is not None:
                pods.setdefault(slot, []).append(entry)
            elif devices.is_share(entry.device):
                self._problems.record_once(
                    "unknown_device", "HAMi", f"pod {entry.namespace}/{entry.pod}: {NOT_IN_SHARES}"
                )
            else:
                text = f"pod {entry.namespace}/{entry.pod} holds {entry.device:.80}, which is not a GPU of this node"
                self._problems.record_once("unknown_device", entry.device, text + self._hint(devices))
        return pods

    def _hint(self, devices: GpuSlots) -> str:
        return "" if devices.knows_minors else f"; {self._procfs}/{DEVICE_FOLDER} shows no numbers of device files"

    def _poll_kubelet(self, mono: float) -> Sequence[PodDevice]:
        """Return the pods that hold GPUs by the kubelet, and show whether it lists them."""
        if self._kubelet is None:
            return ()
        pods = self._kubelet.poll(mono)
        fault = self._kubelet.fault
        if fault is not None and fault.counts:
            self._problems.count("kubelet")
        if self._kubelet.is_there:
            self._job_readings.way("jobs_kubelet", fault is None)
            self._log_source("pods by the kubelet", str(fault or ""), denied=fault is not None and fault.denied)
        return pods

    def _add_mapped(
        self, board: AllocationTable, granted: Mapping[Key, set[GpuSlot]], devices: GpuSlots, mono: float
    ) -> None:
        entries: dict[Key, list[tuple[GpuSlot, Job]]] = {}
        for entry in self._files.entries():
            slot = devices.find_file(entry.device, by_minor=self._mapping_by_minor)
            if is_invalid_job_id(entry.job):
                text = f"{entry.path}: {entry.job!r:.80} is not a job id"
                self._problems.record_once("foul_id", text, text)
            elif slot is None:
                text = f"{entry.path}: there is no GPU {entry.device!r:.80}"
                self._problems.record_once("unknown_device", text, text + self._hint(devices))
            else:
                job = self._mapped_job(entry, mono)
                entries.setdefault(job.key, []).append((slot, job))
        mapped: dict[GpuSlot, list[Job]] = {}
        for key, named in entries.items():
            if not granted.get(key, set()) <= {slot for slot, _ in named}:
                self._problems.record_once("mapping", "names", f"{key[0]} job {key[1]}: {CONTRADICTED}")
                continue
            for slot, job in named:
                mapped.setdefault(slot, []).append(job)
        add_mapped(board, mapped)
        if self._files.directory_exists:
            self._job_readings.way("jobs_mapping", not self._files.failed)

    def _mapped_job(self, entry: MappingEntry, mono: float) -> Job:
        user = "" if entry.uid is None else self._users.name(entry.uid, mono) or str(entry.uid)
        return Job(scheduler_of(entry.job), entry.job, user=user)

    def _show(
        self,
        board: AllocationTable,
        running: Mapping[Gpu, Sequence[GpuProcess]],
        latest: Iterable[Reading],
        mono: float,
    ) -> None:
        jobs = board.summaries()
        energy = {
            reading.series.entity: reading.value
            for reading in latest
            if reading.series.metric is ENERGY_OF and isinstance(reading.series.entity, Gpu)
        }
        self._ledger.add_energy(board.owners(), energy)
        self._ledger.remember_jobs({key: summary.job.started for key, summary in jobs.items()}, mono)
        for slot in sorted(board.slots, key=lambda slot: (slot.gpu.uuid, slot.mig)):
            holdings = board.slots[slot]
            named = [(jobs[key].job, holdings[key].job.container) for key in sorted(holdings)]
            self._job_readings.holders(slot, named, held=not any(holding.pids for holding in holdings.values()))
            for key, holding in sorted(holdings.items()):
                usage = usage_of(slot, holding.pids, running.get(slot.gpu, ()))
                self._job_readings.share(slot, jobs[key].job, holding.job.container, usage)
        for key in sorted(jobs):
            self._job_readings.job(jobs[key], self._ledger.started.get(key), self._ledger.totals.get(key))
