"""The readings that the page at `/` needs from a snapshot, by metric name, gathered in one pass."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from typing import NamedTuple

from agent.model import Entity, Gap, Gpu, IbPort, Reading, Reason, Snapshot

_ENOUGH = 2000
"""Readings that are examined without a break: about a third of a millisecond."""

_SILENT = frozenset({Reason.LOST, Reason.TIMEOUT, Reason.PAUSED})
UP = "coldplate_gpu_up"
PORT_UP = "coldplate_infiniband_port_up"

WANTED = frozenset(
    {
        UP, PORT_UP, "coldplate_gpu_info", "coldplate_gpus_expected", "coldplate_gpu_sample_age_seconds",
        "coldplate_gpu_utilization_ratio", "coldplate_gpu_power_watts", "coldplate_gpu_power_limit_watts",
        "coldplate_gpu_power_limit_default_watts", "coldplate_gpu_temperature_celsius",
        "coldplate_gpu_memory_temperature_celsius", "coldplate_gpu_memory_used_bytes",
        "coldplate_gpu_memory_total_bytes", "coldplate_gpu_temperature_margin_celsius",
        "coldplate_gpu_clock_hertz", "coldplate_gpu_clock_limit_hertz", "coldplate_gpu_throttle_active",
        "coldplate_gpu_hw_slowdown_active", "coldplate_gpu_pcie_link_width", "coldplate_gpu_pcie_link_width_max",
        "coldplate_gpu_row_remap_pending", "coldplate_gpu_row_remap_failure", "coldplate_gpu_recovery_action",
        "coldplate_gpu_xid_last_timestamp_seconds", "coldplate_nvlink_up", "coldplate_gpu_job_info",
        "coldplate_gpu_shared_job_info", "coldplate_job_info", "coldplate_job_start_timestamp_seconds",
        "coldplate_job_energy_joules_total", "coldplate_infiniband_rate_bytes_per_second",
        "coldplate_infiniband_info", "coldplate_infiniband_state_id", "coldplate_infiniband_physical_state_id",
        "coldplate_infiniband_link_down_events_total", "coldplate_node_power_watts",
        "coldplate_rack_power_watts", "coldplate_rack_power_budget_watts",
    }
)  # fmt: skip
"""The metrics that the page shows."""


class Gathered(NamedTuple):
    """Readings by metric name, and why devices are silent: the first gap of each that is lost or does not answer."""

    readings: dict[str, list[Reading]]
    silent: dict[Entity, Gap]

    def of(self, name: str) -> list[Reading]:
        """Return all readings of a metric, none if it is absent."""
        return self.readings.get(name, [])

    def by_entity(self, name: str, *label: tuple[str, str]) -> dict[Entity, float]:
        """Return the value for each entity, only of series with this label if one is given."""
        return {each.entity: each.value for each in self.of(name) if all(pair in each.labels for pair in label)}

    def one(self, name: str) -> float | None:
        """Return the value of a metric that a node has once."""
        return next((each.value for each in self.of(name)), None)


def gather(snapshot: Snapshot | None) -> Generator[str, None, Gathered]:
    """Yield what the page needs. It yields empty texts often, as pauses: a node may have 20,000 series."""
    found = Gathered({}, {})
    if snapshot is None:
        return found
    for some in _some(snapshot):
        for reading in some:
            name = reading[0].metric.name
            if name in WANTED:
                found.readings.setdefault(name, []).append(reading)
        yield ""
    for report in snapshot.reports:
        for gap in report.gaps:
            if gap.reason in _SILENT and isinstance(gap.entity, (Gpu, IbPort)):
                found.silent.setdefault(gap.entity, gap)
        yield ""
    return found


def _some(readings: Iterable[Reading]) -> Iterable[list[Reading]]:
    left = iter(readings)
    while some := list(islice(left, _ENOUGH)):
        yield some
