"""Which job holds which GPU or MIG instance, from processes, the kubelet and mapping files. Pure.

A process started by a scheduler is the most reliable. A device without one belongs to its pod, or else to the job that
a prolog recorded; a process without a scheduler on such a device is counted as theirs. Information from a
pod or a file is not added to a scheduler's own process: the pod in which a Slurm daemon runs has every GPU.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from agent.backends.jobs.job import Job, Key, merge_jobs, to_label_value
from agent.backends.jobs.pods import PodDevice, PodName
from agent.backends.protocol import GpuProcess
from agent.model import Gpu, Reading

WHOLE = "0"
"""The `mig` of a job that has the whole GPU. Also the number of the one instance that takes the whole GPU."""
UNKNOWN = ""
"""The `mig` of a process on a GPU with MIG whose instance the driver does not report."""

_NUMBERED = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
"""Names of mapping files that are no UUIDs: a GPU, and one of its GPU instances."""

_GKE = re.compile(r"nvidia([0-9]{1,9})(?:/gi([0-9]{1,9}))?(?:/vgpu[0-9]+)?")
"""Device ids of Google's device plugin: the names of device files, by minor number (pkg/gpu/nvidia of
GoogleCloudPlatform/container-engine-accelerators), with a GPU instance and with a share of several pods."""

_SHARED = re.compile(r"((?:GPU|MIG)-.+)-[0-9]+")
"""Device ids of HAMi, UUID-NUMBER. The kubelet chooses among them by itself, and HAMi gives the pod the GPUs in an
annotation, which only the API server has (HAMi issue 1741)."""

_CLAIMED = re.compile(r"gpu-([0-9]{1,9})(-mig-[0-9-]+)?")
"""Devices of dynamic resource allocation, by minor number."""


class GpuSlot(NamedTuple):
    """What a job can hold: a GPU, or one MIG instance of it."""

    gpu: Gpu
    mig: str = WHOLE


MIG_INFO = "coldplate_gpu_mig_info"


def mig_slots(readings: Iterable[Reading]) -> dict[str, GpuSlot]:
    """Return the slot of each MIG device by its UUID, from coldplate_gpu_mig_info in a snapshot."""
    slots = {}
    for reading in readings:
        if reading.series.metric.name == MIG_INFO:
            labels = dict(reading.series.labels)
            gpu = reading.series.entity
            if isinstance(gpu, Gpu):
                slots[labels.get("mig_uuid", "")] = GpuSlot(gpu, labels.get("gpu_instance", UNKNOWN))
    return slots


class GpuSlots:
    """The GPUs of the node at one poll, by the various names that other programs use for them.

    `mig` has the slots of its MIG devices by UUID, `read_minors` gives the UUIDs of GPUs by the minor numbers of their
    device files: some names are these.
    """

    def __init__(
        self, gpus: Iterable[Gpu], mig: Mapping[str, GpuSlot], read_minors: Callable[[], Mapping[int, str]]
    ) -> None:
        self._read_minors = read_minors
        self._slots: dict[str, GpuSlot] = dict(mig)
        self._instances = frozenset(mig.values())
        self._divided = {slot.gpu for slot in mig.values()}
        for gpu in gpus:
            self._slots[gpu.uuid] = self._slots[gpu.index] = GpuSlot(gpu)

    @property
    def is_divided(self) -> bool:
        return bool(self._divided)

    @property
    def knows_minors(self) -> bool:
        return bool(self._minors)

    @cached_property
    def _minors(self) -> Mapping[int, str]:
        return self._read_minors()

    def find_minor(self, number: int) -> GpuSlot | None:
        """Return the slot of a GPU by the minor number of its device file."""
        return self._slots.get(self._minors.get(number, ""))

    def find(self, name: str) -> GpuSlot | None:
        """Return the slot of an index, UUID, MIG UUID or device plugin's id, also with a replica's number."""
        name = name.partition("::")[0]
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        file = _GKE.fullmatch(name)
        if file is not None:
            return self._part(self.find_minor(int(file[1])), file[2])
        claimed = _CLAIMED.fullmatch(name)
        if claimed is None:
            return None
        whole = self.find_minor(int(claimed[1]))
        return GpuSlot(whole.gpu, UNKNOWN) if whole is not None and claimed[2] else whole

    def find_file(self, name: str, *, by_minor: bool) -> GpuSlot | None:
        """Return the slot of a mapping file by its name, whose numbers are indices or minor numbers."""
        match = _NUMBERED.fullmatch(name)
        if match is None:
            return self.find(name)
        whole = self.find_minor(int(match[1])) if by_minor else self._slots.get(match[1])
        return self._part(whole, match[2])

    def is_share(self, name: str) -> bool:
        """Return whether a device id is one of those that HAMi makes of a GPU's UUID, which name no GPU."""
        match = _SHARED.fullmatch(name)
        return match is not None and match[1] in self._slots

    def _part(self, whole: GpuSlot | None, instance: str | None) -> GpuSlot | None:
        """Return the slot of a GPU instance, or of the whole GPU; None if the driver lists others, and not this one."""
        if whole is None or instance is None:
            return whole
        slot = GpuSlot(whole.gpu, instance)
        return None if whole.gpu in self._divided and slot not in self._instances else slot

    def of_process(self, gpu: Gpu, instance: int | None) -> GpuSlot:
        if instance is not None:
            return GpuSlot(gpu, str(instance))
        return GpuSlot(gpu, UNKNOWN if gpu in self._divided else WHOLE)


def usage_of(slot: GpuSlot, pids: Container[int], processes: Iterable[GpuProcess]) -> tuple[int | None, float | None]:
    """Add up bytes of memory and share of SM time of a job's processes on a slot.

    Memory is absent (None) if that of any of them is unknown. A process that ran no kernel has no share of time.
    """
    own = [p for p in processes if p.pid in pids and (p.instance is None or str(p.instance) == slot.mig)]
    memory = [p.memory for p in own if p.memory is not None]
    shares = [p.sm for p in own if p.sm is not None]
    is_memory_known = bool(own) and len(memory) == len(own)
    return sum(memory) if is_memory_known else None, min(sum(shares), 1.0) if shares else None


KUBERNETES = "kubernetes"
LONGEST_HOST = 63
"""Characters of a pod's name that fit into its host name."""

Pods = Mapping[GpuSlot, Sequence[PodDevice]]
Claim = tuple[GpuSlot, PodName]
"""A slot, and the pod that a process there seems to belong to."""


class Allocation(Struct):
    """A job with what it holds: its processes on one slot, or all of its GPUs and processes."""

    job: Job
    pids: set[int] = field(default_factory=set)
    gpus: set[Gpu] = field(default_factory=set)


class AllocationTable:
    """Jobs by slot."""

    def __init__(self) -> None:
        self.slots: dict[GpuSlot, dict[Key, Allocation]] = {}

    def add(self, slot: GpuSlot, job: Job, pids: Iterable[int] = ()) -> None:
        holdings = self.slots.setdefault(slot, {})
        holding = holdings.get(job.key)
        if holding is None:
            holding = holdings[job.key] = Allocation(job)
        else:
            holding.job = merge_jobs(holding.job, job)
        holding.pids.update(pids)

    def jobs(self) -> list[Job]:
        return [holding.job for holdings in self.slots.values() for holding in holdings.values()]

    def jobs_on(self, slot: GpuSlot) -> list[Job]:
        return [holding.job for holding in self.slots.get(slot, {}).values()]

    def replace_plain(self, slot: GpuSlot, jobs: Iterable[Job]) -> None:
        """Give the slot to these jobs; if it is only one, processes there without a scheduler count as its own."""
        before = self.slots.pop(slot, {})
        pids = {pid for holding in before.values() for pid in holding.pids}
        for job in jobs:
            self.add(slot, job)
        holdings = self.slots.get(slot, {})
        if len(holdings) == 1:
            next(iter(holdings.values())).pids.update(pids)

    def resolve_unknown_instances(self) -> None:
        """Place processes whose MIG instance is not known on the instance that their job has on that GPU, if any."""
        for slot in [slot for slot in self.slots if slot.mig == UNKNOWN]:
            for key, holding in list(self.slots[slot].items()):
                holdings_elsewhere = (
                    held for other, held in self.slots.items() if other.gpu == slot.gpu and other != slot
                )
                home = next((held[key] for held in holdings_elsewhere if key in held), None)
                if home is not None:
                    home.pids.update(holding.pids)
                    del self.slots[slot][key]
            if not self.slots[slot]:
                del self.slots[slot]

    def limit(self, most: int) -> list[GpuSlot]:
        """Keep the first `most` jobs of each slot, by their keys; returns the slots that had more."""
        over = [slot for slot, holdings in self.slots.items() if len(holdings) > most]
        for slot in over:
            self.slots[slot] = dict(sorted(self.slots[slot].items())[:most])
        return over

    def summaries(self) -> dict[Key, Allocation]:
        """Return each job with its GPUs and processes; what is known of a job on one slot counts for all."""
        summaries: dict[Key, Allocation] = {}
        for slot, holdings in self.slots.items():
            for key, holding in holdings.items():
                summary = summaries.get(key)
                if summary is None:
                    summary = summaries[key] = Allocation(holding.job)
                else:
                    summary.job = merge_jobs(summary.job, holding.job)
                summary.gpus.add(slot.gpu)
                summary.pids |= holding.pids
        return summaries

    def owners(self) -> dict[Gpu, Key]:
        """Return the job of each GPU that one job has to itself."""
        alone: dict[Gpu, Key | None] = {}
        for slot, holdings in self.slots.items():
            sole = slot.mig == WHOLE and len(holdings) == 1 and slot.gpu not in alone
            alone[slot.gpu] = next(iter(holdings)) if sole else None
        return {gpu: key for gpu, key in alone.items() if key is not None}


class PodNames:
    """The names of pods whose processes are known by the pod's uid alone; kept as long as the pod has processes."""

    def __init__(self) -> None:
        self._names: dict[str, PodName] = {}

    def names_of(self, uids: Iterable[str]) -> set[PodName]:
        """Return the names of those pods whose names are known."""
        return {self._names[uid] for uid in uids if uid in self._names}

    def name_pods(
        self, board: AllocationTable, pods: Pods, hosts: Mapping[int, str], logged: Mapping[str, PodName]
    ) -> None:
        """Replace uids by names wherever it is certain which pod it is.

        `hosts` are host names by process, `logged` are those, by uid, of the kubelet's log directories.
        """
        self._update_names(board, pods, hosts)
        for slot, holdings in list(board.slots.items()):
            board.slots[slot] = {}
            for holding in holdings.values():
                job = holding.job
                if job.scheduler == KUBERNETES:
                    pod = logged.get(job.id) or self._names.get(job.id)
                    job = (
                        replace(job, name=_host(holding, hosts))
                        if pod is None
                        else merge_jobs(pod_job(pod, pods.get(slot, ())), job)
                    )
                board.add(slot, job, holding.pids)

    def _update_names(self, board: AllocationTable, pods: Pods, hosts: Mapping[int, str]) -> None:
        """Learn names; a privileged pod that uses GPUs of others must not be named after the pods that own them."""
        claims: dict[str, set[Claim]] = {}
        for slot, holdings in board.slots.items():
            for holding in holdings.values():
                if holding.job.scheduler == KUBERNETES:
                    pod_claims = claims.setdefault(holding.job.id, set())
                    pod = _pod_of(slot, _host(holding, hosts), pods)
                    if pod is not None:
                        pod_claims.add((slot, pod))
        self._names = {uid: pod for uid, pod in self._names.items() if uid in claims}
        sure = {uid: pod_claims for uid, pod_claims in claims.items() if len({name for _, name in pod_claims}) == 1}
        claimants = Counter(claim for pod_claims in sure.values() for claim in pod_claims)
        for uid, pod_claims in claims.items():
            if uid in sure and all(claimants[claim] == 1 for claim in pod_claims):
                self._names[uid] = next(name for _, name in pod_claims)
            elif pod_claims:
                self._names.pop(uid, None)


def pod_job(pod: PodName, devices: Sequence[PodDevice]) -> Job:
    """Return a pod as a job: `namespace/name`, which also identifies a pod without any process.

    `devices` are those of a slot: they name its container there, if it is only one.
    """
    namespace, name = map(to_label_value, pod)
    containers = {d.container for d in devices if d.pod_name == pod}
    container = to_label_value(containers.pop()) if len(containers) == 1 else ""
    return Job(KUBERNETES, f"{namespace}/{name}", name=name, namespace=namespace, pod=name, container=container)


def add_pods(board: AllocationTable, pods: Pods) -> None:
    """Add the pods that hold a slot: beside its named pods, or in place of jobs without a scheduler."""
    for slot, devices in pods.items():
        present = board.jobs_on(slot)
        jobs = {job.key: job for job in (pod_job(d.pod_name, devices) for d in devices)}
        if all(job.plain for job in present):
            board.replace_plain(slot, jobs.values())
        elif all(job.scheduler == KUBERNETES and job.pod for job in present if not job.plain):
            for job in jobs.values():
                board.add(slot, job)


def add_mapped(board: AllocationTable, mapped: Mapping[GpuSlot, Sequence[Job]]) -> None:
    """Add the jobs that mapping files name, where nothing more reliable is known."""
    for slot, jobs in mapped.items():
        if all(job.plain for job in board.jobs_on(slot)):
            board.replace_plain(slot, jobs)


def _pod_of(slot: GpuSlot, host: str, pods: Pods) -> PodName | None:
    """Return the pod of a process on this slot: the only one there, else the one with its host's name."""
    names = {d.pod_name for d in pods.get(slot, ())}
    if len(names) == 1:
        return names.pop()
    if not names:
        names = {d.pod_name for devices in pods.values() for d in devices}
    named = [n for n in names if host and n[1][:LONGEST_HOST].rstrip("-.") == host]
    return named[0] if len(named) == 1 else None


def _host(holding: Allocation, hosts: Mapping[int, str]) -> str:
    return next((hosts[pid] for pid in sorted(holding.pids) if hosts.get(pid)), "")
