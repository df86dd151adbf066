"""Keep the newest sample of each node, and the recent rates of its counters.

Threads that read put samples in, and the thread that draws takes them out. Traffic is a rate, which changes with every
sample; errors are the growth over a minute.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from agent.health.ledger_states import STATE_SECONDS
from agent.model import Alert, Entity, Gpu, Labels, PastMoment, Series, Snapshot


class ProcessRow(Struct, frozen=True):
    """A process that computes on a GPU. `memory` in bytes, None if not known; user and command are empty if not."""

    pid: int
    memory: int | None
    user: str
    command: str


class NodeSample(Struct, frozen=True):
    """The last sample of one node: a snapshot, or the problem that prevents one.

    `name` is what it was asked by, `node` the name that its agent gives it, empty if it gives none.
    `alerts`: None if no rules are evaluated. `unjudged` says why the absence of alerts proves nothing; empty if the
    rules are up to date. `age` is that of the snapshot in seconds when it came, `mono` when that was. `past` are the
    minutes before the command started, the oldest first. `processes` are those of the GPUs whose driver lists them,
    None if the source is an agent, whose API does not give them. `states` are those that the agent gives, None where
    there is no agent.
    """

    name: str
    origin: str
    snapshot: Snapshot | None = None
    alerts: Sequence[Alert] | None = None
    problem: str = ""
    age: float = 0.0
    mono: float = 0.0
    past: Sequence[PastMoment] = ()
    processes: Mapping[Gpu, Sequence[ProcessRow]] | None = None
    unjudged: str = ""
    node: str = ""
    states: Mapping[Gpu, str] | None = None


class SampleBoard:
    """The latest sample of each node, in the order in which they were named; `changed` is called in any thread."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, NodeSample | None] = {}
        """None of a node that is expected and has not been heard of."""
        self._changed = changed
        self._arrived = threading.Condition(self._lock)
        self._counts: dict[str, int] = {}

    def expect(self, name: str) -> None:
        """Register a node before its first sample arrives."""
        with self._lock:
            self._latest.setdefault(name, None)

    def store_sample(self, sample: NodeSample) -> None:
        with self._arrived:
            previous = self._latest.get(sample.name)
            self._latest[sample.name] = sample
            if previous is None or _moment(previous) != _moment(sample) or sample.snapshot is None:
                self._counts[sample.name] = self._counts.get(sample.name, 0) + 1
            self._arrived.notify_all()
        self._changed()

    def latest(self) -> tuple[list[NodeSample], dict[str, int]]:
        """Return one for each registered node, and how many samples or problems of each there were so far."""
        with self._lock:
            return [sample for sample in self._latest.values() if sample is not None], dict(self._counts)

    def wait(self, counts: Mapping[str, int], seconds: float) -> None:
        """Wait until there is another sample, or problem, of every expected node than those counted, or for so long."""
        with self._arrived:
            self._arrived.wait_for(
                lambda: all(self._counts.get(name, 0) > counts.get(name, 0) for name in self._latest), seconds
            )


def _moment(sample: NodeSample) -> float | None:
    return None if sample.snapshot is None else sample.snapshot.at.mono


NVLINK = ("coldplate_gpu_nvlink_transmit_bytes_total", "coldplate_gpu_nvlink_receive_bytes_total")
PCIE = ("coldplate_gpu_pcie_transmit_bytes_total", "coldplate_gpu_pcie_receive_bytes_total")
PORT = ("coldplate_infiniband_port_data_received_bytes_total", "coldplate_infiniband_port_data_transmitted_bytes_total")
TRAFFIC = frozenset((*NVLINK, *PCIE, *PORT))
"""Counters of bytes that are read in the fast lane."""
PORT_ERRORS = {
    "coldplate_infiniband_link_down_events_total": "went down",
    "coldplate_infiniband_link_downed_total": "link downed",
    "coldplate_infiniband_link_error_recovery_total": "link recoveries",
    "coldplate_infiniband_symbol_error_total": "symbol errors",
    "coldplate_infiniband_local_link_integrity_errors_total": "link integrity errors",
    "coldplate_infiniband_port_errors_received_total": "receive errors",
}
"""Counters of a port's errors, and what people call them. What congestion alone can raise is not among them."""
GPU_ERRORS = {
    "coldplate_gpu_nvlink_errors_total": "NVLink errors",
    "coldplate_gpu_ecc_errors_total": "ECC errors",
    "coldplate_gpu_pcie_replays_total": "PCIe replays",
    "coldplate_gpu_throttle_seconds_total": "throttled seconds",
}
_COUNTERS = TRAFFIC | PORT_ERRORS.keys() | GPU_ERRORS.keys() | {STATE_SECONDS}
WINDOW_SECONDS = 60.0
"""Seconds over which the growth of an error counter is shown."""


class Traffic:
    """What the counters of one node did up to its last sample. A counter that fell starts again.

    `rates` in the counter's unit per second, `growth` in its unit over the window, both by metric name and entity. What
    has no two samples yet is absent.
    """

    def __init__(self) -> None:
        self.rates: dict[tuple[str, Entity], float] = {}
        self.growth: dict[tuple[str, Entity, Labels], float] = {}
        self._windows: dict[Series, deque[tuple[float, float]]] = {}
        """Of each counter the samples of the last minute: monotonic seconds and values."""
        self._at: float | None = None

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Compare a snapshot with those before; the same one again changes nothing."""
        now = snapshot.at.mono
        if self._at == now:
            return
        if self._at is not None and now < self._at:  # the node's agent or the node itself was restarted
            self._windows = {}
        before, self._windows, self._at = self._windows, {}, now
        self.rates, self.growth = {}, {}
        for series, value in snapshot:
            name = series.metric.name
            if name not in _COUNTERS:
                continue
            window = self._windows[series] = _window(before.get(series), value, now)
            if len(window) > 1 and name in TRAFFIC:
                since, last = window[-2]
                self.rates[name, series.entity] = (value - last) / (now - since)
            elif len(window) > 1:
                self.growth[name, series.entity, series.labels] = value - window[0][1]


def _window(window: deque[tuple[float, float]] | None, value: float, now: float) -> deque[tuple[float, float]]:
    """Return the samples of the last minute, with the one that was valid at its beginning."""
    if window is None or value < window[-1][1]:
        window = deque()
    window.append((now, value))
    while len(window) > 2 and window[1][0] <= now - WINDOW_SECONDS:
        window.popleft()
    return window
