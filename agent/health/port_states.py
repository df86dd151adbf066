"""The state of each InfiniBand or RoCE port of a node at a moment: up, slow beside the others, off, down or silent."""

from __future__ import annotations

from typing import NamedTuple

from agent.health.seen_node import SeenNode
from agent.health.verdicts import Verdict
from agent.model import IbPort

PORT_UP = "coldplate_infiniband_port_up"
RATE = "coldplate_infiniband_rate_bytes_per_second"
STATE = "coldplate_infiniband_state_id"
PHYSICAL = "coldplate_infiniband_physical_state_id"
METRICS = (PORT_UP, RATE, STATE, PHYSICAL)
_STATES = {1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "ActiveDefer"}
_PHYSICAL_STATES = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "Training",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "PhyTest",
}
"""The kernel's words: include/rdma/ib_verbs.h and drivers/infiniband/core/sysfs.c of Linux."""
DISABLED = 3
LINK_UP = 5
"""The physical state of a port with a working cable; the subnet manager makes it active."""
BELOW_RATE = 0.95
"""Share of the usual rate, as in the rule InfinibandRateDegraded."""


class PortState(NamedTuple):
    """A port, how it is in a word, and its states in the kernel's words; the rate in bytes per second."""

    port: IbPort
    verdict: Verdict
    word: str
    link: str
    rate: float | None

    @property
    def is_up(self) -> bool:
        return self.word in ("up", "slow")


def port_states(view: SeenNode) -> list[PortState]:
    """Return the ports that report whether they are up, and those that do not answer, as down."""
    known = {port: False for port in view.silent if isinstance(port, IbPort)}
    known |= {each.entity: each.value == 1 for each in view.all(PORT_UP) if isinstance(each.entity, IbPort)}
    rates, states, physical = (view.by_entity(metric) for metric in (RATE, STATE, PHYSICAL))
    middle = sorted(rates.values())
    usual = middle[len(middle) // 2] if middle else 0.0
    found = []
    for port, up in known.items():
        rate, verdict, word = rates.get(port), Verdict.OK, "up"
        if not up and physical.get(port) == DISABLED:  # switched off by an operator
            verdict, word = Verdict.SKIPPED, "off"
        elif not up:
            verdict, word = Verdict.CRITICAL, "silent" if port in view.silent else "down"
        elif rate is not None and rate < BELOW_RATE * usual:
            verdict, word = Verdict.WARNING, "slow"
        words = (_word(_STATES, states.get(port)), _word(_PHYSICAL_STATES, physical.get(port)))
        found.append(PortState(port, verdict, word, ", ".join(filter(None, words)), rate))
    return found


def _word(words: dict[int, str], code: float | None) -> str:
    return "" if code is None else words.get(int(code), f"{code:.0f}")
