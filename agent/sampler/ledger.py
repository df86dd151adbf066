"""Divides each second of each GPU among states, so that the states of a GPU add up to the time that it was observed.

How one second is divided is the subject of gpu_second.py. Only GPUs that a job holds whole and alone are compared;
where that is not known the state is a coarser one (`held`), never `awaited`.

A GPU instance (MIG) has no power and no clock of its own, and no peer-to-peer transfers, neither over NVLink nor PCIe
(NVIDIA's MIG User Guide, "Application Considerations"). So instances are not compared with each other, and have only
the states in which none waits for another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.catalogue.gpu import MIG_STATES, STATES, WORKING_POWER
from agent.catalogue.jobs import JOB
from agent.model import EMPTY_LAYOUT, Entity, Frame, Gpu, Labels, Layout, Node, Series
from agent.sampler.gpu_second import (
    NO_PEERS,
    NOBODY,
    UNKNOWN_SECOND,
    GpuHolder,
    GpuSecond,
    JobPeers,
    is_working,
    peers_of,
    shares_of,
)
from agent.sampler.lock_step import LockStep
from agent.sampler.node_sums import NORMAL, Where, series_of
from agent.sampler.rates import Flow, IdlePower, Rate

_OF_GPU = BY_NAME["coldplate_gpu_state_seconds_total"]
_OF_JOB = BY_NAME["coldplate_job_gpu_seconds_total"]
_OF_INSTANCE = BY_NAME["coldplate_gpu_mig_state_seconds_total"]
_ROWS = {
    BY_NAME[f"coldplate_gpu_{name}"]: key
    for key, name in (
        ("up", "up"),
        ("busy", "utilization_ratio"),
        ("power", "power_watts"),
        ("limit", "power_limit_watts"),
        ("default", "power_limit_default_watts"),
        ("tensor", "tensor_active_ratio"),
        ("sm", "sm_active_ratio"),
        ("dram", "dram_active_ratio"),
        ("used", "memory_used_bytes"),
        ("received", "pcie_receive_bytes_total"),
    )
}
_MIG_ROWS = {
    BY_NAME[f"coldplate_gpu_mig_{name}_ratio"]: key
    for key, name in (
        ("busy", "utilization"),
        ("tensor", "tensor_active"),
        ("sm", "sm_active"),
        ("dram", "dram_active"),
    )
}
_THROTTLE = BY_NAME["coldplate_gpu_throttle_active"]
_HOLDER = BY_NAME["coldplate_gpu_job_info"]
_INFO = BY_NAME["coldplate_gpu_info"]
_WRITTEN = ("coldplate_node_disk_written_bytes_total", "coldplate_node_network_transmit_bytes_total",
            "coldplate_infiniband_port_data_transmitted_bytes_total")  # fmt: skip
_READ = ("coldplate_node_disk_read_bytes_total", "coldplate_node_network_receive_bytes_total")
_PRESSURE = BY_NAME["coldplate_node_pressure_waiting_seconds_total"]

GROWTHS = {"used": 64 * 2**20, "received": 1e9}
"""Bytes a second by which memory in use grows while a GPU loads, and that PCIe brings to one that waits for data."""
KEPT_SECONDS = 600.0
"""Seconds for which the totals of a job or GPU that is gone are kept: its facts are absent while a worker restarts."""
DATA_PRESSURE = 0.2
"""Share of the time in which some task waits for I/O from which the host is busy with data."""


class _TrackedGpu:
    """One GPU of the node: where its values are, who holds it, and what it did so far."""

    __slots__ = (
        "_growing", "_has_worked", "_idle", "_places", "_rates", "_throttles", "gpu", "held", "of_job", "totals"
    )  # fmt: skip

    def __init__(
        self, gpu: Entity, places: dict[str, Where], throttles: Sequence[Where], held: GpuHolder,
        before: _TrackedGpu | None,
    ) -> None:  # fmt: skip
        self.gpu = gpu
        self.held = held
        self.totals: dict[str, float] = {}
        self.of_job: dict[str, float] | None = None
        self._places = tuple(places.items())
        self._growing = {key: places[key] for key in GROWTHS if key in places}
        self._throttles = throttles
        self._has_worked: bool = before is not None and before._has_worked and before.held == held
        self._rates: defaultdict[str, Rate] = defaultdict(Rate) if before is None else before._rates
        self._idle: IdlePower = IdlePower() if before is None else before._idle

    def read(self, values: Sequence[Sequence[float]], now: float) -> GpuSecond:
        """Return what the GPU did since the tick before. `values` are those of all frames."""
        read = {key: values[frame][place] for key, (frame, place) in self._places}
        if not read.get("up"):
            return GpuSecond(False, 0.0, False, False, False)
        limit = max(read.get("limit", 0.0), read.get("default", 0.0))
        power = read["power"] / limit if limit > 0.0 and "power" in read else None
        if power is None and "busy" not in read:
            return UNKNOWN_SECOND
        throttled = any(values[frame][place] for frame, place in self._throttles)
        busy = min(max(read.get("busy", 1.0 if power is not None and power >= WORKING_POWER else 0.0), 0.0), 1.0)
        if power is not None and self.held.job is not None:
            self._idle.update(now, busy, power)
        works = is_working(read, power, self._idle.share)
        loads = fed = False
        if busy < 1.0:  # of a busy GPU it does not matter
            loads, fed = self._grows("used", values, now), self._grows("received", values, now)
        if works and busy >= 0.5:
            self._has_worked = True
        activity, used = read.get("tensor", power), read.get("used")
        return GpuSecond(True, busy, works, throttled, loads, fed, activity, used, self._has_worked)

    def _grows(self, key: str, values: Sequence[Sequence[float]], now: float) -> bool:
        """Return whether a value grew much between its last two reads."""
        if key not in self._growing:
            return False
        frame, place = self._growing[key]
        return self._rates[key].update(values[frame], (place,), now) >= GROWTHS[key]

    def add(self, shares: tuple[tuple[str, float], ...], elapsed: float) -> None:
        """Count the seconds of a tick, for the GPU and for its job."""
        for state, share in shares:
            if share > 0.0:
                self.totals[state] += share * elapsed
                if self.of_job is not None:
                    self.of_job[state] += share * elapsed


class _InstanceKey(NamedTuple):
    """A GPU instance, by its number on the GPU and its UUID."""

    gpu: Entity
    number: str
    uuid: str


class _Instance(NamedTuple):
    """Where the activity of a GPU instance is, whether a job holds it, and its seconds by state."""

    places: dict[str, Where]
    is_held: bool
    totals: dict[str, float]

    def add(self, values: Sequence[Sequence[float]], elapsed: float) -> None:
        """Divide a tick between what the instance did while it was busy, and while it was idle."""
        read = {key: values[frame][place] for key, (frame, place) in self.places.items()}
        busy = min(max(read["busy"], 0.0), 1.0)
        self.totals["computing" if is_working(read, None) else "waiting"] += busy * elapsed
        self.totals["held" if self.is_held else "free"] += (1.0 - busy) * elapsed


class GpuLedger:
    """Counts the seconds of each GPU, of each job and of each GPU instance, by state. For the sampling thread.

    The counters of an instance are absent while its activity is: before Hopper, and while its GPU does not answer.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._layouts: tuple[Layout, ...] = ()
        self._gpus: list[_TrackedGpu] = []
        self._members: dict[Labels, list[int]] = {}
        """The places in `_gpus` of those that each job holds whole."""
        self._instances: list[_Instance] = []
        self._flows = self._written, self._read, self._waited = Flow(), Flow(), Flow()
        self._totals: dict[Entity | Labels | _InstanceKey, dict[str, float]] = {}
        """Seconds by state, of each GPU, job and GPU instance."""
        self._seen: dict[Entity | Labels | _InstanceKey, tuple[float, dict[str, float]]] = {}
        """When those of before were last there, and their totals."""
        self._layout = EMPTY_LAYOUT
        self._lock_step = LockStep()

    def frames(self, now: float, frames: Sequence[Frame]) -> tuple[Frame, Frame]:
        """Add the time since the tick before, and return all counters, and how the GPUs of jobs keep step.

        `now` in monotonic seconds.
        """
        layouts = tuple(map(itemgetter(0), frames))
        if layouts != self._layouts:
            self._find(layouts, now)
        values = [frame.values for frame in frames]
        for flow in self._flows:
            flow.update(values, now)
        if self._at is not None and now > self._at:
            self._count(now, now - self._at, values)
        self._at = now
        counters = Frame(self._layout, tuple(chain.from_iterable(total.values() for total in self._totals.values())))
        return counters, self._lock_step.frame()

    def _count(self, now: float, elapsed: float, values: Sequence[Sequence[float]]) -> None:
        seconds = [account.read(values, now) for account in self._gpus]
        writes, reads = self._written.is_high, self._read.is_high or self._waited.rate > DATA_PRESSURE
        peers: dict[Labels, JobPeers] = {}
        for job, members in self._members.items():
            of_job = [seconds[place] for place in members]
            peers[job] = peers_of(of_job)
            self._lock_step.count(
                job,
                [
                    (self._gpus[place].gpu, second.activity)
                    for place, second in zip(members, of_job, strict=True)
                    if second.busy >= 0.5 and second.activity is not None
                ],
                elapsed,
            )
        for tracked, second in zip(self._gpus, seconds, strict=True):
            if second.works and second.busy == 1.0:  # most seconds of a busy node
                tracked.add(_THROTTLED if second.is_throttled else _COMPUTING, elapsed)
                continue
            job_peers = NO_PEERS if tracked.held.job is None else peers[tracked.held.job].without(second)
            tracked.add(shares_of(second, tracked.held, job_peers, writes=writes, reads=reads), elapsed)
        if any(second.works and second.busy >= 0.5 for second in seconds):
            self._written.update_usual(elapsed)
            self._read.update_usual(elapsed)
        for instance in self._instances:
            instance.add(values, elapsed)

    def _find(self, layouts: tuple[Layout, ...], now: float) -> None:
        """Note where the values are, and which job holds which GPUs whole."""
        places: dict[Entity, dict[str, Where]] = defaultdict(dict)
        throttles: dict[Entity, list[Where]] = defaultdict(list)
        holders: dict[Entity, list[dict[str, str]]] = defaultdict(list)
        activities: dict[_InstanceKey, dict[str, Where]] = defaultdict(dict)
        flows: tuple[dict[int, list[int]], ...] = tuple(defaultdict(list) for _ in self._flows)
        for series, at in series_of(layouts):
            metric = series.metric
            if isinstance(series.entity, Gpu):
                if metric in _ROWS:
                    places[series.entity][_ROWS[metric]] = at
                elif metric in _MIG_ROWS:
                    labels = dict(series.labels)
                    key = _InstanceKey(series.entity, labels["gpu_instance"], labels["mig_uuid"])
                    activities[key][_MIG_ROWS[metric]] = at
                elif metric is _INFO:
                    places[series.entity].setdefault("info", at)
                elif metric is _THROTTLE and dict(series.labels).get("reason") not in NORMAL:
                    throttles[series.entity].append(at)
                elif metric is _HOLDER:
                    holders[series.entity].append(dict(series.labels))
            for flow, names in zip(flows, (_WRITTEN, _READ), strict=False):
                if metric.name in names:
                    flow[at.frame].append(at.place)
            if metric is _PRESSURE and dict(series.labels).get("resource") == "io":
                flows[2][at.frame].append(at.place)
        self._layouts = layouts
        before = {account.gpu: account for account in self._gpus}
        self._gpus = [
            _TrackedGpu(
                gpu, place, throttles[gpu], _held_by(holders[gpu]) if gpu in holders else NOBODY, before.get(gpu)
            )
            for gpu, place in places.items()
            if "up" in place or "info" in place
        ]
        self._members = defaultdict(list)
        for number, tracked in enumerate(self._gpus):
            if tracked.held.job is not None:
                self._members[tracked.held.job].append(number)
        self._lock_step.keep_only(
            (account.gpu, account.held.job) for account in self._gpus if account.held.job is not None
        )
        for flow_of, columns in zip(self._flows, flows, strict=True):
            flow_of.find(layouts, columns)
        instances = {key: activity for key, activity in activities.items() if "busy" in activity}
        self._lay_out(list(instances), now)
        held = {(gpu, job_labels.get("mig")) for gpu, several in holders.items() for job_labels in several}
        self._instances = [
            _Instance(instance, (key.gpu, key.number) in held, self._totals[key]) for key, instance in instances.items()
        ]

    def _lay_out(self, instances: Sequence[_InstanceKey], now: float) -> None:
        """Count what the node has now. GPUs, jobs and instances that come back within minutes go on where they were."""
        gpus = [account.gpu for account in self._gpus]
        keys: list[Entity | Labels | _InstanceKey] = [*gpus, *self._members, *instances]
        if keys != list(self._totals):
            self._seen.update({key: (now, totals) for key, totals in self._totals.items()})
            self._seen = {key: state for key, state in self._seen.items() if now - state[0] <= KEPT_SECONDS}
            self._totals = {
                key: self._seen[key][1]
                if key in self._seen
                else dict.fromkeys(MIG_STATES if isinstance(key, _InstanceKey) else STATES, 0.0)
                for key in keys
            }
            self._layout = Layout(tuple(chain.from_iterable(map(_series_of_key, keys))))
        for tracked in self._gpus:
            tracked.totals = self._totals[tracked.gpu]
            tracked.of_job = None if tracked.held.job is None else self._totals[tracked.held.job]


def _series_of_key(key: Entity | Labels | _InstanceKey) -> list[Series]:
    """Return the series of a GPU, a job or a GPU instance, one for each state."""
    if isinstance(key, _InstanceKey):
        own = ("mig_uuid", key.uuid), ("gpu_instance", key.number)
        return [Series(_OF_INSTANCE, key.gpu, (*own, ("state", state))) for state in MIG_STATES]
    if isinstance(key, Gpu):
        return [Series(_OF_GPU, key, (("state", state),)) for state in STATES]
    assert isinstance(key, tuple)
    return [Series(_OF_JOB, Node(), (*key, ("state", state))) for state in STATES]


_COMPUTING, _THROTTLED = (("computing", 1.0),), (("throttled", 1.0),)


def _held_by(holders: Sequence[dict[str, str]]) -> GpuHolder:
    if len(holders) == 1 and holders[0].get("mig", "0") == "0":
        return GpuHolder(tuple((name, holders[0].get(name, "")) for name in JOB), False)
    return GpuHolder(None, True)
