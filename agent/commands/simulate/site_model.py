"""A simulated site as data: its racks and nodes, what each node plays, and when nodes do not answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent.backends.synthetic.scenario import Scenario, Window


class Loss(Enum):
    """Why a node does not answer."""

    AGENT = "agent-down"  # the agent alone: the node and its jobs go on
    POWER = "power-loss"  # the whole node: its jobs wait on their other nodes


@dataclass(frozen=True, slots=True)
class SiteNode:
    """A node, the rack that it is in, and what it plays."""

    name: str
    rack: str
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class SiteRack:
    """A rack. `budget` in watts, None if it has none."""

    name: str
    nodes: tuple[str, ...]
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """Nodes that do not answer while the window holds; its times are seconds from the start of the simulation."""

    loss: Loss
    window: Window
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """Everything that is simulated. The same site gives the same readings at the same second."""

    cluster: str
    nodes: tuple[SiteNode, ...]
    racks: tuple[SiteRack, ...]
    outages: tuple[Outage, ...] = ()
