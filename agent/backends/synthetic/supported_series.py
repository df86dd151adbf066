"""Which series a synthetic device offers: walks the catalogue, so that a new row needs no code here.

A row that the model does not vary shows a constant: a fact of the machine, or else the least of its `span`. A row that
the machine does not offer becomes a gap with a reason, as with the real driver.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from agent.backends.synthetic.machines import MachineType
from agent.catalogue import BY_NAME, ROWS, links
from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import Call, Field, Gpm, is_measured
from agent.catalogue.gpu import EVENT_REASONS, MIG, RECOVERY_ACTIONS
from agent.catalogue.infiniband import NEAREST_HCA
from agent.catalogue.jobs import HOLDERS
from agent.catalogue.links import FABRIC_PROBLEMS, FABRIC_STATES
from agent.model import Gap, Gpu, IbPort, Kind, Lane, Metric, NvLink, Reason

Key = tuple[str, ...]
"""A series of a device: the metric's name, then the values of the row's own labels."""

ELSEWHERE = frozenset(row.name for row in (*MIG, *HOLDERS, NEAREST_HCA))
"""Rows of a GPU that its channel does not show: MIG is off on every synthetic GPU, others come from elsewhere."""

PORT_DERIVED = ("coldplate_infiniband_port_up", "coldplate_infiniband_link_down_events_total")
"""Rows of a port that its reader derives from others."""

BLACKWELL_ERRORS = 5
"""The NVLink version from which a link has error counters of its own kind."""
_OF_BLACKWELL = frozenset(
    (
        *(f"coldplate_nvlink_{kind}_errors_total" for kind in ("receive", "symbol", "effective")),
        *(row.name for row in links.QUALITY),
    )
)

_WORDS: dict[str, tuple[str, ...]] = {
    "coldplate_gpu_throttle_active": tuple(name for _, name in EVENT_REASONS),
    "coldplate_gpu_recovery_action": RECOVERY_ACTIONS,
    "coldplate_gpu_fabric_state": FABRIC_STATES,
    "coldplate_gpu_fabric_problem": FABRIC_PROBLEMS,
}
"""Label values that the catalogue keeps beside the row."""


class Offer(Struct, frozen=True):
    """One series that a device shows in a lane."""

    row: Metric
    labels: Key
    lane: Lane

    @property
    def key(self) -> Key:
        return (self.row.name, *self.labels)


def device_offers(machine: MachineType, entity: type) -> Iterator[Offer]:
    """Yield what a GPU of this machine, or each of its NVLinks, shows."""
    for row in ROWS:
        if row.entity is entity and is_measured(row) and row.name not in ELSEWHERE and not unoffered(row, machine):
            yield from _expand(row, machine)


def port_offers() -> Iterator[Offer]:
    """Yield what each InfiniBand port shows. A synthetic node does not have the counters of kernels before 4.5."""
    for row in ROWS:
        if row.entity is IbPort and port_offered(row):
            yield Offer(row, (), row.lane)


def port_offered(row: Metric) -> bool:
    if row.name.startswith("coldplate_infiniband_legacy_"):
        return False
    return is_measured(row) or row.name in PORT_DERIVED


def gpu_gaps(gpu: Gpu, machine: MachineType, lane: Lane) -> tuple[Gap, ...]:
    """Return what this machine's GPUs do not offer in a lane."""
    return tuple(
        Gap(row, gpu, Reason.UNSUPPORTED, detail)
        for row in ROWS
        if row.entity in (Gpu, NvLink) and row.lane is lane and is_measured(row) and row.name not in ELSEWHERE
        and (detail := unoffered(row, machine))
    )  # fmt: skip


def unoffered(row: Metric, machine: MachineType) -> str:
    """Return why GPUs of this machine do not offer the row; empty when they do."""
    name = row.name
    if not machine.gpm and row.origin and all(isinstance(each, Gpm) for each in row.origin):
        return f"nvmlGpmQueryDeviceSupport: {machine.model} has no GPM, which needs Hopper or newer"
    if not machine.module_power and name == "coldplate_gpu_module_power_watts":
        return f"NVML field 186, scope 1: {machine.model} is not a Grace module"
    if not machine.nvlinks and (row.entity is NvLink or name.startswith("coldplate_gpu_nvlink_")):
        return f"NVML field 91: {machine.model} has no NVLink"
    if machine.nvlink_version < BLACKWELL_ERRORS and name in _OF_BLACKWELL:
        return f"{row.origin[0]}: a counter of NVLink from Blackwell on"
    if not machine.cluster and name.startswith("coldplate_gpu_fabric_"):
        return f"nvmlDeviceGetGpuFabricInfoV: {machine.model} is not in an NVLink fabric"
    return ""


def _expand(row: Metric, machine: MachineType) -> Iterator[Offer]:
    if not row.labels:
        yield Offer(row, (), row.lane)
        return
    if row.name == "coldplate_gpu_fabric_info":
        yield Offer(row, (machine.cluster, "0"), row.lane)
        return
    if row.name in _WORDS:
        yield from (Offer(row, (word,), row.lane) for word in _WORDS[row.name])
        return
    seen: set[Key] = set()
    for binding in row.origin:
        if not isinstance(binding, (Field, Call, Gpm)) or len(binding.labels) != len(row.labels):
            continue
        if binding.labels in seen or not _of_version(binding, machine):
            continue
        seen.add(binding.labels)
        lane = binding.lane if isinstance(binding, Call) and binding.lane is not None else row.lane
        yield Offer(row, binding.labels, lane)


_LINK_ERRORS = {
    binding.id
    for name in ("coldplate_nvlink_errors_total", "coldplate_gpu_nvlink_errors_total")
    for binding in BY_NAME[name].origin
    if isinstance(binding, Field)
}


def _of_version(binding: Field | Call | Gpm, machine: MachineType) -> bool:
    """Return whether the machine's NVLinks have this error counter; true for everything else."""
    if not isinstance(binding, Field) or binding.id not in _LINK_ERRORS:
        return True
    return (binding.id > nvml.FI_DEV_NVLINK_ERROR_DL_CRC) == (machine.nvlink_version >= BLACKWELL_ERRORS)


def constant(row: Metric, machine: MachineType, key: Key) -> float:
    """Return the value of a series that the model does not vary."""
    facts = {
        ("coldplate_gpu_memory_total_bytes",): machine.memory,
        ("coldplate_gpu_memory_reserved_bytes",): machine.reserved,
        ("coldplate_gpu_power_limit_default_watts",): machine.power_limit,
        ("coldplate_gpu_clock_limit_hertz", "sm"): machine.clock_sm,
        ("coldplate_gpu_clock_limit_hertz", "memory"): machine.clock_memory,
        ("coldplate_gpu_pcie_link_generation_max",): float(machine.pcie_generation),
        ("coldplate_gpu_pcie_link_width_max",): float(machine.pcie_width),
        ("coldplate_gpu_persistence_enabled",): 1.0,
        ("coldplate_gpu_ecc_enabled",): 1.0,
        ("coldplate_gpu_fabric_state", "completed"): 1.0,
        ("coldplate_gpu_recovery_action", "none"): 1.0,
        ("coldplate_nvlink_up",): 1.0,
        ("coldplate_gpu_nvlink_speed_bytes_per_second",): machine.nvlinks * machine.nvlink_speed,
    }
    if key in facts:
        return facts[key]
    if row.kind is Kind.INFO:
        return 1.0
    return max(0.0, row.span[0])
