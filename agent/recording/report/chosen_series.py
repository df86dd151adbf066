"""Which series a report is made of, and what is kept of each: everything else in a recording is passed over."""

from __future__ import annotations

from collections.abc import Callable

from agent.catalogue import BY_NAME
from agent.model import Series
from agent.recording.report.series_figures import Figure, GaugeFigure, GrowthFigure, StateFigure
from agent.recording.report.step_time import StepSignal
from agent.recording.report.time_grid import TimeGrid

UTILIZATION = "coldplate_gpu_utilization_ratio"
SM, TENSOR, DRAM = (f"coldplate_gpu_{what}_active_ratio" for what in ("sm", "tensor", "dram"))
OCCUPANCY = "coldplate_gpu_sm_occupancy_ratio"
MEMORY, MEMORY_TOTAL = "coldplate_gpu_memory_used_bytes", "coldplate_gpu_memory_total_bytes"
POWER, POWER_LIMIT = "coldplate_gpu_power_watts", "coldplate_gpu_power_limit_watts"
TEMPERATURE, MEMORY_TEMPERATURE = "coldplate_gpu_temperature_celsius", "coldplate_gpu_memory_temperature_celsius"
CLOCK = "coldplate_gpu_clock_hertz"
SM_CLOCK = (("domain", "sm"),)
ENERGY = "coldplate_gpu_energy_joules_total"
PCIE_OUT, PCIE_IN = "coldplate_gpu_pcie_transmit_bytes_total", "coldplate_gpu_pcie_receive_bytes_total"
NVLINK_OUT, NVLINK_IN = "coldplate_gpu_nvlink_transmit_bytes_total", "coldplate_gpu_nvlink_receive_bytes_total"
PORT_OUT, PORT_IN = (f"coldplate_infiniband_port_data_{what}_bytes_total" for what in ("transmitted", "received"))
PORT_RATE, PORT_UP = "coldplate_infiniband_rate_bytes_per_second", "coldplate_infiniband_port_up"
THROTTLED, THROTTLE_ACTIVE = "coldplate_gpu_throttle_seconds_total", "coldplate_gpu_throttle_active"
GPU_UP, GPU_INFO = "coldplate_gpu_up", "coldplate_gpu_info"
XIDS, GRADED_XIDS = "coldplate_gpu_xid_errors_total", "coldplate_gpu_xid_graded_errors_total"
ECC, REMAP_PENDING, REMAP_FAILED = (
    f"coldplate_gpu_{what}" for what in ("ecc_errors_total", "row_remap_pending", "row_remap_failure")
)
NVLINK_ERRORS, NVLINK_UP = "coldplate_gpu_nvlink_errors_total", "coldplate_nvlink_up"
PCIE_REPLAYS = "coldplate_gpu_pcie_replays_total"
PORT_ERRORS = tuple(
    f"coldplate_infiniband_{what}_total"
    for what in ("symbol_error", "link_downed", "link_error_recovery", "port_errors_received", "link_down_events")
)
HOLDER, SHARED_HOLDER, JOB = "coldplate_gpu_job_info", "coldplate_gpu_shared_job_info", "coldplate_job_info"
CPU, CPUS, PRESSURE = (
    "coldplate_node_cpu_seconds_total",
    "coldplate_node_cpus",
    ("coldplate_node_pressure_waiting_seconds_total"),
)
DISK_READ, SWITCH_ERRORS = "coldplate_node_disk_read_bytes_total", "coldplate_node_nvswitch_sxid_errors_total"
NODE_POWER, ALERT = "coldplate_node_power_watts", "coldplate_alert"

_GAUGES = (UTILIZATION, SM, TENSOR, DRAM, OCCUPANCY, MEMORY, MEMORY_TOTAL, POWER, POWER_LIMIT, TEMPERATURE,
           MEMORY_TEMPERATURE, PORT_RATE, CPUS, NODE_POWER)  # fmt: skip
_RATES = (PCIE_OUT, PCIE_IN, NVLINK_OUT, NVLINK_IN, PORT_OUT, PORT_IN)
_COUNTERS = (ENERGY, THROTTLED, ECC, NVLINK_ERRORS, PCIE_REPLAYS, *PORT_ERRORS, CPU, PRESSURE, DISK_READ)
_BORN_AT_ZERO = (XIDS, GRADED_XIDS, SWITCH_ERRORS)
"""Counters of which a series appears with what it counts: its first value has happened since the snapshot before."""
_STATES = (GPU_UP, GPU_INFO, THROTTLE_ACTIVE, REMAP_PENDING, REMAP_FAILED, NVLINK_UP, PORT_UP, HOLDER, SHARED_HOLDER,
           JOB, ALERT)  # fmt: skip
_STEPPING = (NVLINK_OUT, TENSOR, POWER)
"""Signals in which the steps of a training job can be seen."""

_Maker = Callable[[TimeGrid, Series], Figure]


def _gauge(grid: TimeGrid, series: Series) -> Figure:
    return GaugeFigure(grid, series.metric.unit)


_MAKERS: dict[str, _Maker] = {
    **dict.fromkeys(_GAUGES, _gauge),
    **dict.fromkeys(_RATES, lambda grid, _: GrowthFigure(grid)),
    **dict.fromkeys(_COUNTERS, lambda _grid, _series: GrowthFigure(None)),
    **dict.fromkeys(_BORN_AT_ZERO, lambda _grid, _series: GrowthFigure(None, born_at_zero=True)),
    **dict.fromkeys(_STATES, lambda _grid, _series: StateFigure()),
}
if not _MAKERS.keys() <= BY_NAME.keys():
    raise AssertionError(f"no rows of the catalogue: {sorted(_MAKERS.keys() - BY_NAME.keys())}")


def figure_of(series: Series, grid: TimeGrid) -> Figure | None:
    """What to keep of a series; None if nothing is."""
    name = series.metric.name
    if name == CLOCK:
        return _gauge(grid, series) if series.labels == SM_CLOCK else None
    maker = _MAKERS.get(name)
    return maker(grid, series) if maker is not None else None


def signal_of(series: Series, snapshots: int) -> StepSignal | None:
    """What to keep of a series to find the steps of a job in it; None if they do not show in it."""
    name = series.metric.name
    return StepSignal(snapshots, counts=name == NVLINK_OUT) if name in _STEPPING else None
