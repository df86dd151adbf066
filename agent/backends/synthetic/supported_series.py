"""Which series a synthetic device offers: walks the catalogue, so that a new row needs no code here.

A row that the model does not vary shows a constant: a fact of the machine, or else the least of its `span`. A row that
the machine does not offer becomes a gap with a reason, as with the real driver.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from agent.backends.synthetic.machines import MachineType
from agent.catalogue import BY_NAME, ROWS, links
from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import Call, Field, Gpm, is_measured
from agent.catalogue.gpu import EVENT_REASONS, MIG, RECOVERY_ACTIONS
from agent.catalogue.infiniband import NEAREST_HCA
from agent.catalogue.jobs import HOLDERS
from agent.catalogue.links import FABRIC_PROBLEMS, FABRIC_STATES
from agent.model import Gap, Gpu, Kind, Lane, Metric, NvLink, Reading, Reason, Series

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


@lru_cache(maxsize=16)  # all machines that there are
def _offers(machine: MachineType, entity: type) -> tuple[tuple[Metric, Key, Lane, float], ...]:
    """Return what a GPU of this machine, or each of its NVLinks, shows: row, its labels' values, lane and constant."""
    facts = _facts(machine)
    return tuple(
        (row, words, lane, facts.get((row.name, *words), 1.0 if row.kind is Kind.INFO else max(0.0, row.span[0])))
        for row in ROWS
        if row.entity is entity and _is_own(row) and not unoffered(row, machine)
        for words, lane in _expand(row, machine)
    )


def fixed_readings(machine: MachineType, entity: Gpu | NvLink, lane: Lane) -> Iterator[tuple[Key, Reading]]:
    """Yield each series of a GPU or a link in a lane, with its reading as long as the model gives no other.

    A link's key has the link's number second.
    """
    place = (str(entity.link),) if isinstance(entity, NvLink) else ()
    for row, words, where, value in _offers(machine, type(entity)):  # type: ignore[arg-type] # a class is hashable
        if where is lane:
            series = Series(row, entity, tuple(zip(row.labels, words, strict=True)))
            yield (row.name, *place, *words), Reading(series, value)


def _is_own(row: Metric) -> bool:
    """Return whether a GPU's channel shows the row, if the machine has it."""
    return is_measured(row) and row.name not in ELSEWHERE


def port_offered(row: Metric) -> bool:
    """Return whether a port shows the row. A synthetic node does not have the counters of kernels before 4.5."""
    if row.name.startswith("coldplate_infiniband_legacy_"):
        return False
    return is_measured(row) or row.name in PORT_DERIVED


def gpu_gaps(gpu: Gpu, machine: MachineType, lane: Lane) -> tuple[Gap, ...]:
    """Return what this machine's GPUs do not offer in a lane."""
    return tuple(
        Gap(row, gpu, Reason.UNSUPPORTED, detail)
        for row in ROWS
        if row.entity in (Gpu, NvLink) and row.lane is lane and _is_own(row) and (detail := unoffered(row, machine))
    )


def unoffered(row: Metric, machine: MachineType) -> str:
    """Return why GPUs of this machine do not offer the row; empty when they do."""
    name = row.name
    if not machine.gpm and row.origin and all(isinstance(o, Gpm) for o in row.origin):
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


def _expand(row: Metric, machine: MachineType) -> Iterator[tuple[Key, Lane]]:
    """Yield the values of the row's labels in each of its series, and the lane."""
    if not row.labels:
        yield (), row.lane
    elif row.name == "coldplate_gpu_fabric_info":
        yield (machine.cluster, "0"), row.lane
    elif row.name in _WORDS:
        yield from (((word,), row.lane) for word in _WORDS[row.name])
    else:
        lanes: dict[Key, Lane] = {}
        for binding in row.origin:
            if not isinstance(binding, Field | Call | Gpm) or len(binding.labels) != len(row.labels):
                continue
            if _of_version(binding, machine):
                own = binding.lane if isinstance(binding, Call) else None
                lanes.setdefault(binding.labels, own or row.lane)
        yield from lanes.items()


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


def _facts(machine: MachineType) -> Mapping[Key, float]:
    """Return the series that the model does not vary and the machine determines."""
    return {
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
    }
