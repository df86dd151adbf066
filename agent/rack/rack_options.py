"""The rack's part of the configuration, in the terms of the parts that watch it."""

from math import inf

from msgspec import Struct, field

from agent.rack.agreement import BUDGET, FEEDS, NODES
from agent.rack.breakers import Breaker
from agent.rack.finder import Entry
from agent.rack.peer_messages import MOST_LIMITS, MOST_NAME, Access

BEYOND_PLATE = 1.5
"""How many times its nameplate a node is believed to draw at most: the plate may be a little low."""
BEYOND_BUDGET = 2.0
"""The same in times the rack's budget, for a node of unknown nameplate: one alone may overrun a small rack."""
MOST_FEEDS = MOST_LIMITS - 8


class RackOptions(Struct, frozen=True):
    """The rack's part of the configuration; `name` is empty without a rack, times are in seconds.

    Without `nodes_expected` the peers are counted. `nameplate`, `budget` and the limits of `feeds` are in watts.
    `stale_after` is for how long a node's last sample counts as its present power.
    """

    name: str = ""
    nodes_expected: int | None = None
    nameplate: float | None = None
    entries: tuple[Entry, ...] = ()
    access: Access = field(default_factory=Access)
    stale_after: float = 3.0
    budget: float | None = None
    feeds: tuple[tuple[str, float], ...] = ()
    breakers: tuple[Breaker, ...] = ()
    failover: float | None = None
    nvlink_domains: int | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The numbers that all agents of the rack should agree on, without a number of nodes that was only counted."""
        single = {BUDGET: self.budget, "node_nameplate": self.nameplate, NODES: self.nodes_expected}
        limits = {name: float(value) for name, value in single.items() if value is not None}
        return limits | {f"{FEEDS}{name}"[:MOST_NAME]: watts for name, watts in self.feeds[:MOST_FEEDS]}

    @property
    def cap(self) -> float:
        """The most watts that a node is believed to draw: by its nameplate, or without one by the rack's budget."""
        if self.nameplate is not None:
            return self.nameplate * BEYOND_PLATE
        return inf if self.budget is None else self.budget * BEYOND_BUDGET

    @property
    def adds_up(self) -> bool:
        """Whether this agent can know the power of the rack."""
        return bool(self.name) and (bool(self.entries) or self.nodes_expected == 1)
