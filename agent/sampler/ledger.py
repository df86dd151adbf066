"""Divides each second of each GPU among states, so that the states of a GPU add up to the time that it was observed.

A GPU is busy for the share of a second that the driver's utilization says, and idle for the rest. Busy means computing
where power, tensor cores, multiprocessors or memory show work, else waiting: a GPU that spins in a collective is fully
busy. What an idle second was depends on the job's other GPUs on this node, and on what the node reads and writes. Only
GPUs that a job holds whole and alone are compared; where that is not known the state is a coarser one (`held`), never
`awaited`.

A GPU instance (MIG) has no power and no clock of its own, and no peer-to-peer transfers, neither over NVLink nor PCIe
(NVIDIA's MIG User Guide, "Application Considerations"). So instances are not compared with each other, and have only
the states in which none waits for another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.catalogue.gpu import MIG_STATES, STATES, WORKING_POWER
from agent.catalogue.jobs import JOB
from agent.model import EMPTY_LAYOUT, Entity, Frame, Gpu, Labels, Layout, Node, Series
from agent.sampler.lock_step import LockStep
from agent.sampler.node_sums import NORMAL, Where, series_of

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

SPINNING_POWER = 0.25
"""Share of the default power limit below which a busy GPU without activity counters waits.

Spinning reaches 24%, decoding falls to 27%. Reported of spinning GPUs: H100 100 to 157 W of 700 W (NeMo issue 9291,
nccl issue 1550), V100 40 to 47 W of 250 W (horovod issue 3611).
"""
ABOVE_IDLE = 0.05
"""Share of it by which spinning exceeds the GPU's own idle power, at most. PCIe boards idle above `SPINNING_POWER`.

Beside 129 to 137 W of idle H100 whose memory a job holds, one that spins draws 152 W (nccl issue 1550): 3%.
"""
SETTLED_SECONDS, IDLE_SECONDS = 10.0, 60.0
"""For how long a GPU must be idle before its power counts as idle power, and the time constant of learning that."""
WORKING_TENSOR, WORKING_SM, WORKING_DRAM = 0.05, 0.3, 0.1
"""Activities from which a busy GPU computes."""
GROWTHS = {"used": 64 * 2**20, "received": 1e9}
"""Bytes a second by which memory in use grows while a GPU loads, and that PCIe brings to one that waits for data."""
HELD_BYTES = 2**30
"""Memory in use from which a GPU is held though no job is known: a process outside of the agent's view has it.

A driver that reports no reserved memory counts it as used: 0.5 GiB on an H100 (nvmlMemory_v1_t).
"""
FAR_ABOVE, LEAST_BYTES = 3.0, 200e6
"""The node writes or reads far above the usual from this multiple of the usual rate, and this excess in bytes/s, on."""
USUAL_SECONDS = 300.0
"""Time constant of the usual rate, which is learned while GPUs compute."""
KEPT_SECONDS = 600.0
"""Seconds for which the totals of a job or GPU that is gone are kept: its facts are absent while a worker restarts."""
DATA_PRESSURE = 0.2
"""Share of the time in which some task waits for I/O from which the host is busy with data."""


class GpuHolder(NamedTuple):
    """Who holds a GPU: a job that has it whole and alone, others (`is_shared`), or no job."""

    job: Labels | None
    is_shared: bool


_NOBODY = GpuHolder(None, False)


class GpuSecond(NamedTuple):
    """One GPU between two ticks. `busy` is a share of the time; `works`: it computes and does not only spin."""

    up: bool
    busy: float
    works: bool
    is_throttled: bool
    is_loading: bool
    is_fed: bool = False
    """Whether much data arrives over PCIe."""
    activity: float | None = None
    """Activity of the tensor cores, else power as a share of the default limit; None where the device shows neither."""
    used: float | None = None
    """Bytes of its memory in use; None where the device does not show them."""
    has_worked: bool = True
    """Whether it computed in its job at any time. One that did not, and holds little memory, is still to be loaded."""
    is_known: bool = True
    """Whether it shows its utilization or its power. Without either, nothing says what it did."""


class JobPeers(NamedTuple):
    """How many other GPUs of a job here show what they do, and how many of them wait or compute most of the time.

    `used` is the most memory that one of the job's GPUs has in use, in bytes.
    """

    up: int = 0
    waiting: int = 0
    computing: int = 0
    used: float = 0.0

    def without(self, second: GpuSecond) -> JobPeers:
        """Return the same without one of them."""
        if not (second.up and second.is_known):
            return self
        mostly = second.busy >= 0.5
        return JobPeers(
            self.up - 1,
            self.waiting - (mostly and not second.works),
            self.computing - (mostly and second.works),
            self.used,
        )


NO_PEERS = JobPeers()
_UNKNOWN_SECOND = GpuSecond(True, 0.0, False, False, False, is_known=False)


def peers_of(seconds: Iterable[GpuSecond]) -> JobPeers:
    """Count the GPUs of one job."""
    up = [each for each in seconds if each.up and each.is_known]
    busy = [each.works for each in up if each.busy >= 0.5]
    return JobPeers(len(up), busy.count(False), busy.count(True), max((each.used or 0.0 for each in up), default=0.0))


def shares_of(
    second: GpuSecond, held: GpuHolder, peers: JobPeers, *, writes: bool, reads: bool
) -> tuple[tuple[str, float], ...]:
    """Divide the time of one GPU. `peers` are the other GPUs of its job here; the host `writes` or `reads` much."""
    if not second.up:
        return (("lost", 1.0),)
    if not second.is_known:
        return ()
    if not second.works and held == _NOBODY and second.used is not None and second.used < HELD_BYTES:
        # Nothing on it can spin: without persistence mode a driver reports up to 100 % of an unused GPU.
        return (("free", 1.0),)
    saves = writes and not peers.computing and held.job is not None
    working, spinning = "throttled" if second.is_throttled else "computing", "saving" if saves else "waiting"
    busy = working if second.works else spinning
    if second.busy == 1.0:
        return ((busy, 1.0),)
    return ((busy, second.busy), (_idle(second, held, peers, saves, reads and not peers.computing), 1.0 - second.busy))


def _idle(second: GpuSecond, held: GpuHolder, peers: JobPeers, saves: bool, reads: bool) -> str:
    if held.is_shared:
        return "held"
    if held.job is None:
        return "held" if (second.used or 0.0) >= HELD_BYTES else "free"
    if second.is_loading or (not second.has_worked and 2 * (second.used or 0.0) < peers.used):
        return "loading"
    if saves:
        return "saving"
    if peers.waiting and 2 * peers.waiting >= peers.up:
        return "awaited"
    return "starved" if (reads or second.is_fed) and not peers.waiting else "held"


class _Rate:
    """Growth per second of the sum of some values of a frame. New ones come with the lane that reads them."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._read: Sequence[float] | None = None
        self._at = self._total = 0.0

    def take(self, values: Sequence[float], places: Sequence[int], now: float) -> float:
        """Return the rate between the last two reads; 0 before the second."""
        if values is not self._read:
            total = sum([values[place] for place in places])
            if self._read is not None and now > self._at:
                self.per_second = max(total - self._total, 0.0) / (now - self._at)
            self._read, self._at, self._total = values, now, total
        return self.per_second


class _Flow:
    """The rate of some counters of the node, and the usual one."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.usual = 0.0
        self._parts: dict[Layout, tuple[int, list[int], _Rate]] = {}
        """By layout, the number of its frame, the places of the counters there, and their rate."""

    def find(self, layouts: Sequence[Layout], places: Mapping[int, list[int]]) -> None:
        """Note where the counters are; those of other layouts are forgotten."""
        rates = {layout: rate for layout, (_, _, rate) in self._parts.items()}
        self._parts = {
            layouts[frame]: (frame, found, rates.get(layouts[frame]) or _Rate()) for frame, found in places.items()
        }

    def take(self, values: Sequence[Sequence[float]], now: float) -> None:
        """Take in the counters of the frames that were read again."""
        self.rate = sum([rate.take(values[frame], places, now) for frame, places, rate in self._parts.values()])

    def learn(self, seconds: float) -> None:
        """Count the present rate to the usual one."""
        self.usual += (self.rate - self.usual) * min(seconds / USUAL_SECONDS, 1.0)

    @property
    def is_high(self) -> bool:
        """Whether the rate is far above the usual."""
        return self.rate > FAR_ABOVE * self.usual + LEAST_BYTES


class _IdlePower:
    """What one GPU draws when a job holds it and nothing runs, as a share of its default limit; 0 until it is known."""

    def __init__(self) -> None:
        self.share = 0.0
        self._idle_since: float | None = None
        self._at = 0.0

    def learn(self, now: float, busy: float, power: float) -> None:
        """Take in a tick. The driver reports means of power, so the first idle seconds still show work."""
        if busy > 0.0:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= SETTLED_SECONDS:
            weight = min((now - self._at) / IDLE_SECONDS, 1.0) if self.share else 1.0
            self.share += (power - self.share) * weight
        self._at = now


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
        self._rates: defaultdict[str, _Rate] = defaultdict(_Rate) if before is None else before._rates
        self._idle: _IdlePower = _IdlePower() if before is None else before._idle

    def read(self, values: Sequence[Sequence[float]], now: float) -> GpuSecond:
        """Return what the GPU did since the tick before. `values` are those of all frames."""
        read = {key: values[frame][place] for key, (frame, place) in self._places}
        if not read.get("up"):
            return GpuSecond(False, 0.0, False, False, False)
        limit = max(read.get("limit", 0.0), read.get("default", 0.0))
        power = read["power"] / limit if limit > 0.0 and "power" in read else None
        if power is None and "busy" not in read:
            return _UNKNOWN_SECOND
        throttled = any(values[frame][place] for frame, place in self._throttles)
        busy = min(max(read.get("busy", 1.0 if power is not None and power >= WORKING_POWER else 0.0), 0.0), 1.0)
        if power is not None and self.held.job is not None:
            self._idle.learn(now, busy, power)
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
        return self._rates[key].take(values[frame], (place,), now) >= GROWTHS[key]

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
        self._flows = self._written, self._read, self._waited = _Flow(), _Flow(), _Flow()
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
            flow.take(values, now)
        if self._at is not None and now > self._at:
            self._count(now, now - self._at, values)
        self._at = now
        counters = Frame(self._layout, tuple(chain.from_iterable(each.values() for each in self._totals.values())))
        return counters, self._lock_step.frame()

    def _count(self, now: float, elapsed: float, values: Sequence[Sequence[float]]) -> None:
        seconds = [each.read(values, now) for each in self._gpus]
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
            others = NO_PEERS if tracked.held.job is None else peers[tracked.held.job].without(second)
            tracked.add(shares_of(second, tracked.held, others, writes=writes, reads=reads), elapsed)
        if any(second.works and second.busy >= 0.5 for second in seconds):
            self._written.learn(elapsed)
            self._read.learn(elapsed)
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
        before = {each.gpu: each for each in self._gpus}
        self._gpus = [
            _TrackedGpu(
                gpu, each, throttles[gpu], _held_by(holders[gpu]) if gpu in holders else _NOBODY, before.get(gpu)
            )
            for gpu, each in places.items()
            if "up" in each or "info" in each
        ]
        self._members = defaultdict(list)
        for number, tracked in enumerate(self._gpus):
            if tracked.held.job is not None:
                self._members[tracked.held.job].append(number)
        self._lock_step.keep((each.gpu, each.held.job) for each in self._gpus if each.held.job is not None)
        for flow_of, found in zip(self._flows, flows, strict=True):
            flow_of.find(layouts, found)
        instances = {key: each for key, each in activities.items() if "busy" in each}
        self._lay_out(list(instances), now)
        held = {(gpu, each.get("mig")) for gpu, several in holders.items() for each in several}
        self._instances = [
            _Instance(each, (key.gpu, key.number) in held, self._totals[key]) for key, each in instances.items()
        ]

    def _lay_out(self, instances: Sequence[_InstanceKey], now: float) -> None:
        """Count what the node has now. GPUs, jobs and instances that come back within minutes go on where they were."""
        gpus = [each.gpu for each in self._gpus]
        keys: list[Entity | Labels | _InstanceKey] = [*gpus, *self._members, *instances]
        if keys != list(self._totals):
            self._seen.update({key: (now, totals) for key, totals in self._totals.items()})
            self._seen = {key: each for key, each in self._seen.items() if now - each[0] <= KEPT_SECONDS}
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


def is_working(read: Mapping[str, float], power: float | None, idle: float = 0.0) -> bool:
    """Return whether a busy GPU or instance computes.

    `power` is a share of the default limit, None if unknown; `idle` is what the GPU draws when idle, 0 if unknown.
    """
    spinning = max(SPINNING_POWER, idle + ABOVE_IDLE)
    if power is not None and power >= max(WORKING_POWER, spinning):
        return True
    activities = ("tensor", WORKING_TENSOR), ("sm", WORKING_SM), ("dram", WORKING_DRAM)
    if any(name in read for name, _ in activities):
        return any(read.get(name, 0.0) >= least for name, least in activities)
    return power is None or power >= spinning
