"""Divides each second of each GPU among states, so that the states of a GPU add up to the time that passed.

A GPU is busy for the share of a second that the driver's utilization says, and idle for the rest. Busy means computing
where power, tensor cores, multiprocessors or memory show work, else waiting: a GPU that spins in a collective is fully
busy. What an idle second was depends on the job's other GPUs on this node, and on what the node reads and writes. Only
GPUs that a job holds whole and alone are compared; where that is not known the state is a coarser one (`held`), never
`awaited`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.catalogue.gpu import STATES, WORKING_POWER
from agent.catalogue.jobs import JOB
from agent.model import EMPTY_LAYOUT, Entity, Frame, Gpu, Labels, Layout, Node, Series
from agent.sampler.lock_step import LockStep
from agent.sampler.node_sums import NORMAL, Where, series_of

_OF_GPU = BY_NAME["coldplate_gpu_state_seconds_total"]
_OF_JOB = BY_NAME["coldplate_job_gpu_seconds_total"]
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
    used: float = 0.0
    """Bytes of its memory in use."""
    has_worked: bool = True
    """Whether it computed in its job at any time. One that did not, and holds little memory, is still to be loaded."""


class JobPeers(NamedTuple):
    """How many other GPUs of a job on this node are up, and how many of them wait or compute most of the time.

    `used` is the most memory that one of the job's GPUs has in use, in bytes.
    """

    up: int = 0
    waiting: int = 0
    computing: int = 0
    used: float = 0.0

    def without(self, second: GpuSecond) -> JobPeers:
        """Return the same without one of them."""
        if not second.up:
            return self
        mostly = second.busy >= 0.5
        return JobPeers(
            self.up - 1,
            self.waiting - (mostly and not second.works),
            self.computing - (mostly and second.works),
            self.used,
        )


NO_PEERS = JobPeers()


def peers_of(seconds: Iterable[GpuSecond]) -> JobPeers:
    """Count the GPUs of one job."""
    up = [each for each in seconds if each.up]
    busy = [each.works for each in up if each.busy >= 0.5]
    return JobPeers(len(up), busy.count(False), busy.count(True), max((each.used for each in up), default=0.0))


def shares_of(
    second: GpuSecond, held: GpuHolder, peers: JobPeers, *, writes: bool, reads: bool
) -> tuple[tuple[str, float], ...]:
    """Divide the time of one GPU. `peers` are the other GPUs of its job here; the host `writes` or `reads` much."""
    if not second.up:
        return (("lost", 1.0),)
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
        return "free"
    if second.is_loading or (not second.has_worked and 2 * second.used < peers.used):
        return "loading"
    if saves:
        return "saving"
    if peers.waiting and 2 * peers.waiting >= peers.up:
        return "awaited"
    return "starved" if (reads or second.is_fed) and not peers.waiting else "held"


class _Flow:
    """The rate of some counters of the node, and the usual one. New values come with the lane that reads them."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.usual = 0.0
        self._before: dict[Layout, tuple[object, float, float]] = {}
        self._rates: dict[Layout, float] = {}

    def take(self, layout: Layout, values: Sequence[float], places: Sequence[int], now: float) -> None:
        """Take in the counters of one frame, if it was read again."""
        known = self._before.get(layout)
        if known is not None and known[0] is values:
            return
        total = sum(values[place] for place in places)
        if known is not None and now > known[1]:
            self._rates[layout] = max(total - known[2], 0.0) / (now - known[1])
            self.rate = sum(self._rates.values())
        self._before[layout] = (values, now, total)

    def learn(self, seconds: float) -> None:
        """Count the present rate to the usual one."""
        self.usual += (self.rate - self.usual) * min(seconds / USUAL_SECONDS, 1.0)

    @property
    def is_high(self) -> bool:
        """Whether the rate is far above the usual."""
        return self.rate > FAR_ABOVE * self.usual + LEAST_BYTES

    def keep(self, layouts: Sequence[Layout]) -> None:
        """Forget the counters of other layouts."""
        self._before = {layout: each for layout, each in self._before.items() if layout in layouts}
        self._rates = {layout: rate for layout, rate in self._rates.items() if layout in layouts}
        self.rate = sum(self._rates.values())


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
        "_growing", "_grown", "_has_worked", "_idle", "_places", "_throttles", "gpu", "held", "of_job", "totals"
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
        self._growing = tuple(places.get(key) for key in GROWTHS)
        self._throttles = throttles
        self._has_worked: bool = before is not None and before._has_worked and before.held == held
        self._grown: dict[str, tuple[object, float, float, bool]] = {} if before is None else before._grown
        self._idle: _IdlePower = _IdlePower() if before is None else before._idle

    def read(self, values: Sequence[Sequence[float]], now: float) -> GpuSecond:
        """Return what the GPU did since the tick before. `values` are those of all frames."""
        read = {key: values[frame][place] for key, (frame, place) in self._places}
        if not read.get("up"):
            return GpuSecond(False, 0.0, False, False, False)
        limit = max(read.get("limit", 0.0), read.get("default", 0.0))
        power = read["power"] / limit if limit > 0.0 and "power" in read else None
        throttled = any(values[frame][place] for frame, place in self._throttles)
        busy = min(max(read.get("busy", 1.0 if power is not None and power >= WORKING_POWER else 0.0), 0.0), 1.0)
        if power is not None and self.held.job is not None:
            self._idle.learn(now, busy, power)
        works = is_working(read, power, self._idle.share)
        loads = fed = False
        if busy < 1.0:  # of a busy GPU it does not matter
            loads, fed = map(self._grows, GROWTHS, self._growing, repeat(values), repeat(now))
        if works and busy >= 0.5:
            self._has_worked = True
        activity, used = read.get("tensor", power), read.get("used", 0.0)
        return GpuSecond(True, busy, works, throttled, loads, fed, activity, used, self._has_worked)

    def _grows(self, key: str, place: Where | None, values: Sequence[Sequence[float]], now: float) -> bool:
        """Return whether a value grew much between its last two reads."""
        if place is None:
            return False
        known, read = self._grown.get(key), values[place.frame]
        if known is not None and known[0] is read:
            return known[3]
        value = read[place.place]
        grew = known is not None and now > known[1] and (value - known[2]) / (now - known[1]) >= GROWTHS[key]
        self._grown[key] = (read, now, value, grew)
        return grew

    def add(self, shares: tuple[tuple[str, float], ...], elapsed: float) -> None:
        """Count the seconds of a tick, for the GPU and for its job."""
        for state, share in shares:
            if share > 0.0:
                self.totals[state] += share * elapsed
                if self.of_job is not None:
                    self.of_job[state] += share * elapsed


class GpuLedger:
    """Counts the seconds of each GPU, and of each job, by state. For the sampling thread."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._layouts: tuple[Layout, ...] = ()
        self._gpus: list[_TrackedGpu] = []
        self._members: dict[Labels, list[int]] = {}
        """The places in `_gpus` of those that each job holds whole."""
        self._written, self._read, self._waited = _Flow(), _Flow(), _Flow()
        self._flows: list[tuple[_Flow, int, list[int]]] = []
        self._totals: dict[Entity | Labels, dict[str, float]] = {}
        """Seconds by state, of each GPU and of each job."""
        self._seen: dict[Entity | Labels, tuple[float, dict[str, float]]] = {}
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
        for flow, number, places in self._flows:
            flow.take(layouts[number], values[number], places, now)
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

    def _find(self, layouts: tuple[Layout, ...], now: float) -> None:
        """Note where the values are, and which job holds which GPUs whole."""
        places: dict[Entity, dict[str, Where]] = defaultdict(dict)
        throttles: dict[Entity, list[Where]] = defaultdict(list)
        holders: dict[Entity, list[dict[str, str]]] = defaultdict(list)
        flows: dict[tuple[int, int], list[int]] = defaultdict(list)
        for series, at in series_of(layouts):
            metric = series.metric
            if isinstance(series.entity, Gpu):
                if metric in _ROWS:
                    places[series.entity][_ROWS[metric]] = at
                elif metric is _INFO:
                    places[series.entity].setdefault("info", at)
                elif metric is _THROTTLE and dict(series.labels).get("reason") not in NORMAL:
                    throttles[series.entity].append(at)
                elif metric is _HOLDER:
                    holders[series.entity].append(dict(series.labels))
            for number, names in enumerate((_WRITTEN, _READ)):
                if metric.name in names:
                    flows[number, at.frame].append(at.place)
            if metric is _PRESSURE and dict(series.labels).get("resource") == "io":
                flows[2, at.frame].append(at.place)
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
        which = (self._written, self._read, self._waited)
        for flow in which:
            flow.keep(layouts)
        self._flows = [(which[number], frame, found) for (number, frame), found in flows.items()]
        self._lay_out(now)

    def _lay_out(self, now: float) -> None:
        """Count the GPUs and jobs that the node has now. Those that come back within minutes go on where they were."""
        gpus = [each.gpu for each in self._gpus]
        keys: list[Entity | Labels] = [*gpus, *self._members]
        if keys != list(self._totals):
            self._seen.update({key: (now, totals) for key, totals in self._totals.items()})
            self._seen = {key: each for key, each in self._seen.items() if now - each[0] <= KEPT_SECONDS}
            self._totals = {
                key: self._seen[key][1] if key in self._seen else dict.fromkeys(STATES, 0.0) for key in keys
            }
            node = Node()
            self._layout = Layout(
                (
                    *(Series(_OF_GPU, gpu, (("state", state),)) for gpu in gpus for state in STATES),
                    *(Series(_OF_JOB, node, (*job, ("state", state))) for job in self._members for state in STATES),
                )
            )
        for tracked in self._gpus:
            tracked.totals = self._totals[tracked.gpu]
            tracked.of_job = None if tracked.held.job is None else self._totals[tracked.held.job]


_NOBODY = GpuHolder(None, False)
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
