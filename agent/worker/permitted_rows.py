"""The rows of the catalogue that a worker may report: those that its source reads, and none made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from agent.catalogue import BY_NAME, ROWS, equipment, optics, transceivers
from agent.catalogue.bindings import Call, Derived, DeviceValue, Field, Gpm
from agent.model import Gpu, IbPort, Lane, Metric, NvLink

JOBS = "coldplate_gpu_job_info"
_OF_SYNTHETIC = frozenset(
    {
        JOBS, "coldplate_job_info", "coldplate_job_start_timestamp_seconds", "coldplate_job_gpus",
        "coldplate_job_processes", "coldplate_job_energy_joules_total", "coldplate_node_power_watts",
        "coldplate_node_nvswitch_sxid_errors_total",
        *(row.name for row in (*optics.ROWS, *transceivers.ROWS, *equipment.ROWS)),
    }
)  # fmt: skip


def rows_of(source: str) -> Mapping[str, Metric]:
    """The rows by name. `source` is a family of devices; a `synthetic` node has its ports, power, water and jobs."""
    if source == "synthetic":
        return {row.name: row for row in ROWS if _synthetic(row)}
    return {row.name: row for row in ROWS if _bound(row, source)}


def missable(source: str) -> Mapping[str, Metric]:
    """The rows that the source may report as missing: jobs, too, if a GPU's processes cannot be listed."""
    return {**rows_of(source), JOBS: BY_NAME[JOBS]}


def _synthetic(row: Metric) -> bool:
    return row.name in _OF_SYNTHETIC or row.entity is IbPort or _measured(row)


def _bound(row: Metric, source: str) -> bool:
    return row.entity in (Gpu, NvLink) and any(_family(each) == source for each in row.origin)


def _family(binding: object) -> str | None:
    """The family of devices that reads a binding; None if none does."""
    if isinstance(binding, DeviceValue):
        return binding.family
    return "nvml" if isinstance(binding, Field | Call | Gpm) else None


def _measured(row: Metric) -> bool:
    if row.entity not in (Gpu, NvLink) or row.lane is Lane.EVENT:
        return False
    return not all(isinstance(each, Derived) for each in row.origin)
