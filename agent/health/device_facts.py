"""Facts of a snapshot by short names: whose devices these are, throttle reasons, ports. Rules say what is bad."""

from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.health.seen_node import UMBRELLA, SeenNode
from agent.model import IbPort, Reason, Snapshot

POWER_CAP = "sw_power_cap"
THROTTLE_WORDS = {
    "hw_thermal_slowdown": "heat (hw)", "hw_power_brake": "power brake", UMBRELLA: "hw slowdown",
    "sw_thermal_slowdown": "heat (sw)", "sync_boost": "sync boost", "application_clocks": "app clocks",
    "display_clocks": "display clocks", POWER_CAP: "power cap", "gpu_idle": "idle",
    "low_utilization": "low utilization",
}  # fmt: skip
"""The driver's reasons for low clocks, in few words."""
INTENDED = frozenset({"sync_boost", "application_clocks", "display_clocks", POWER_CAP, "gpu_idle", "low_utilization"})
"""Those that an operator or the load causes by design: they are shown less prominently."""

PORT_UP = "coldplate_infiniband_port_up"
RATE = "coldplate_infiniband_rate_bytes_per_second"
STATE = "coldplate_infiniband_state_id"
PHYSICAL = "coldplate_infiniband_physical_state_id"
PORT_METRICS = (PORT_UP, RATE, STATE, PHYSICAL)
_STATES = {1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "ActiveDefer"}
_PHYSICAL_STATES = {
    1: "Sleep", 2: "Polling", 3: "Disabled", 4: "Training", 5: "LinkUp", 6: "LinkErrorRecovery", 7: "PhyTest",
}  # fmt: skip
"""The kernel's words: include/rdma/ib_verbs.h and drivers/infiniband/core/sysfs.c of Linux."""
DISABLED = 3
PHYSICAL_LINK_UP = 5
"""The physical state of a port with a working cable; the subnet manager makes it active."""

_NOT_OF_NODE = {BY_NAME["coldplate_synthetic_info"]: "synthetic", BY_NAME["coldplate_replay_info"]: "replayed"}


def devices_not_of_node(snapshot: Snapshot) -> str:
    """Return `synthetic` or `replayed` where the devices of a snapshot are not its node's; empty where they are."""
    metrics = (series.metric for layout, _ in snapshot.frames for series in layout.series)
    return next((_NOT_OF_NODE[metric] for metric in metrics if metric in _NOT_OF_NODE), "")


def throttle_word(reason: str) -> str:
    """Return a reason for low clocks in few words; an unknown one by the driver's name."""
    return THROTTLE_WORDS.get(reason, reason)


class PortFacts(NamedTuple):
    """A port: `up`, `down`, `off` (switched off by an operator) or `silent`; its states in the kernel's words.

    `rate` in bytes per second, None if it is not read.
    """

    port: IbPort
    word: str
    link: str
    rate: float | None

    @property
    def is_up(self) -> bool:
        return self.word == "up"


def port_facts(view: SeenNode) -> list[PortFacts]:
    """Return the ports that report whether they are up, and those that do not answer; none that is paused."""
    unheard = (entity for entity, gap in view.silent.items() if gap.reason is not Reason.PAUSED)
    is_up_by_port = {port: False for port in unheard if isinstance(port, IbPort)}
    is_up_by_port |= {
        reading.entity: reading.value == 1 for reading in view.all(PORT_UP) if isinstance(reading.entity, IbPort)
    }
    rates, states, physical = (view.by_entity(metric) for metric in (RATE, STATE, PHYSICAL))
    ports = []
    for port, up in is_up_by_port.items():
        word = "up"
        if not up and physical.get(port) == DISABLED:
            word = "off"
        elif not up:
            word = "silent" if port in view.silent else "down"
        words = (_word(_STATES, states.get(port)), _word(_PHYSICAL_STATES, physical.get(port)))
        ports.append(PortFacts(port, word, ", ".join(filter(None, words)), rates.get(port)))
    return ports


def _word(words: dict[int, str], code: float | None) -> str:
    return "" if code is None else words.get(int(code), f"{code:.0f}")
