"""What counters did lately: a rate for traffic, which changes with every sample, a growth over a minute for errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent.model import Entity, Labels, Reading, Series, Snapshot

NVLINK = ("coldplate_gpu_nvlink_transmit_bytes_total", "coldplate_gpu_nvlink_receive_bytes_total")
PCIE = ("coldplate_gpu_pcie_transmit_bytes_total", "coldplate_gpu_pcie_receive_bytes_total")
PORT = (
    "coldplate_infiniband_port_data_received_bytes_total",
    "coldplate_infiniband_port_data_transmitted_bytes_total",
)
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
STATE_SECONDS = "coldplate_gpu_state_seconds_total"
WINDOW_SECONDS = 60.0
"""Seconds over which the growth of an error counter is told."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """At one moment. What has no two samples yet is absent.

    `rates` in the counter's unit per second, `growth` in its unit over the window, both by metric name and entity.
    """

    rates: Mapping[tuple[str, Entity], float] = field(default_factory=dict)
    growth: Mapping[tuple[str, Entity, Labels], float] = field(default_factory=dict)


class TrafficMeter:
    """Compares each snapshot of one node with those before. A counter that fell begins anew."""

    def __init__(self) -> None:
        self._last: dict[Series, tuple[float, float]] = {}
        self._windows: dict[Series, deque[tuple[float, float]]] = {}
        self._told = Traffic()
        self._at: float | None = None

    def take(self, snapshot: Snapshot) -> Traffic:
        """What the counters did up to this snapshot; the same snapshot again changes nothing."""
        now = snapshot.at.mono
        if self._at is not None and now < self._at:  # the node's agent or the node itself began anew
            self._last, self._windows = {}, {}
        elif self._at == now:
            return self._told
        rates = dict(self._rates(snapshot, now))
        growth = dict(self._growth(snapshot, now))
        self._at, self._told = now, Traffic(rates, growth)
        return self._told

    def _rates(self, snapshot: Snapshot, now: float) -> Iterator[tuple[tuple[str, Entity], float]]:
        fresh: dict[Series, tuple[float, float]] = {}
        for series, value in snapshot:
            if series.metric.name not in TRAFFIC:
                continue
            fresh[series] = (now, value)
            if (last := self._last.get(series)) is not None and value >= last[1]:
                yield (series.metric.name, series.entity), (value - last[1]) / (now - last[0])
        self._last = fresh

    def _growth(self, snapshot: Snapshot, now: float) -> Iterator[tuple[tuple[str, Entity, Labels], float]]:
        kept: dict[Series, deque[tuple[float, float]]] = {}
        for reading in snapshot:
            series = reading.series
            name = series.metric.name
            if name not in PORT_ERRORS and name not in GPU_ERRORS and name != STATE_SECONDS:
                continue
            window = kept[series] = _window(self._windows.get(series), reading, now)
            if len(window) > 1:
                yield (name, series.entity, series.labels), reading.value - window[0][1]
        self._windows = kept


def _window(window: deque[tuple[float, float]] | None, reading: Reading, now: float) -> deque[tuple[float, float]]:
    """The samples of the last minute, with the one that was valid at its beginning."""
    if window is None or reading.value < window[-1][1]:
        window = deque()
    window.append((now, reading.value))
    while len(window) > 2 and window[1][0] <= now - WINDOW_SECONDS:
        window.popleft()
    return window
