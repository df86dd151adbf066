"""The rack of simulated nodes, as the agents of real ones show it: the power of all in the same second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Protocol

from agent.catalogue import BY_NAME
from agent.commands.simulate.site_model import Outage, SiteRack
from agent.model import Frame, Framer, Rack, Reading, Series
from agent.rack.agreement import GRACE_SECONDS
from agent.rack.power import Sum
from agent.rack.rack_options import RackOptions
from agent.rack.series import ConfiguredRack, RackSeries

PEER_UP = BY_NAME["coldplate_rack_peer_up"]
SOURCE = "synthetic"


class PowerMeter(Protocol):
    """What the rack asks its nodes."""

    def watts(self, t: float) -> float:
        """The power of the node at a second of the simulation."""


class SimulatedRack:
    """One rack. Seconds are those of the simulation, which began at `began`, in whole seconds since the epoch."""

    def __init__(self, plan: SiteRack, outages: Sequence[Outage], began: int) -> None:
        self._plan = plan
        self._began = began
        self._outages = {name: [each for each in outages if name in each.nodes] for name in plan.nodes}
        self._meters: dict[str, PowerMeter] = {}
        self._configured = ConfiguredRack(
            RackOptions(plan.name, nodes_expected=len(plan.nodes), budget=plan.budget)
        ).readings
        self._series = RackSeries(plan.name)
        self._framer = Framer()
        self._made: tuple[int, Frame] | None = None
        self._peers = {name: Series(PEER_UP, Rack(plan.name), (("peer", name),)) for name in plan.nodes}

    def enter(self, name: str, meter: PowerMeter) -> None:
        """Have a node of the plan take part."""
        self._meters[name] = meter

    def down(self, name: str, t: float) -> float | None:
        """Since which second the node has not answered at `t`; None if it does."""
        begun = [each.window.begun(t) for each in self._outages[name]]
        return min((each for each in begun if each is not None), default=None)

    def times_down(self, name: str, t: float) -> int:
        """How often the node has gone down by `t`."""
        return sum(each.window.started(t) for each in self._outages[name])

    def frame(self, t: int) -> Frame:
        """What every node of the rack shows of it at this second."""
        if self._made is None or self._made[0] != t:
            self._made = (t, self._framer.frame(self._readings(t)))
        return self._made[1]

    def peers(self, name: str, t: int) -> list[Reading]:
        """What a node tells of the others."""
        return [
            Reading(series, 1.0 if self.down(other, t) is None else 0.0)
            for other, series in self._peers.items()
            if other != name
        ]

    def _readings(self, t: int) -> list[Reading]:
        since = {name: self.down(name, t) for name in self._meters}
        power = {name: meter.watts(t) for name, meter in self._meters.items() if since[name] is None}
        total = Sum(self._began + t, fsum(power.values()), frozenset(power)) if power else None
        silent = sum(1 for begun in since.values() if begun is not None and t - begun >= GRACE_SECONDS)
        sources: Mapping[str, int] = {SOURCE: len(power)} if power else {}
        return [
            *self._configured,
            *self._series.of_sum(total, len(self._plan.nodes), None),
            *self._series.of_sources(sources),
            *self._series.of_silence(None if t < GRACE_SECONDS else silent),
        ]
