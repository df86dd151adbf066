"""Build the data of one screen, independent of the renderer: rates, histories, alerts, diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.commands.top.screen.node_diagnosis import NodeIssue, diagnose
from agent.commands.top.screen.node_samples import Sighting, TrafficMeter
from agent.commands.top.screen.node_view import History, NodeView, view_of
from agent.lib.wording import age
from exporters.markup import Tone


@dataclass(frozen=True, slots=True)
class ScreenData:
    """Nodes and what is wrong with them. `interval` in seconds."""

    nodes: Sequence[NodeView]
    troubles: Sequence[NodeIssue]
    interval: float

    @property
    def wall(self) -> float | None:
        """The newest time of its nodes."""
        return max((node.wall for node in self.nodes if node.wall is not None), default=None)


STALE_INTERVALS = 4
STALE_SECONDS = 5.0
"""Seconds after which data are said to be old, unless the multiple of the interval is longer."""


class ViewKeeper:
    """Keeps what has to be remembered between two pictures. `interval` in seconds. For one thread."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._meters: dict[str, TrafficMeter] = {}
        self._history = History(interval)

    def scene(self, sightings: Sequence[Sighting], mono: float, note: str = "") -> ScreenData:
        """Return what is shown at a monotonic second; `note` is said of the view itself."""
        nodes = [self._node(each, mono) for each in sightings]
        self._history.take(nodes)
        walls = [node.wall for node in nodes if node.wall is not None]
        troubles = diagnose(nodes, max(walls, default=None))
        notes = [NodeIssue(Tone.CALM, note)] if note else []
        return ScreenData(nodes, [*self._stale(nodes), *troubles, *notes], self._interval)

    def _node(self, sighting: Sighting, mono: float) -> NodeView:
        if sighting.snapshot is None:
            return NodeView(sighting.name, sighting.origin, problem=sighting.problem or "nothing known yet")
        meter = self._meters.setdefault(sighting.name, TrafficMeter())
        node = view_of(sighting.name, sighting.origin, sighting.snapshot, meter.take(sighting.snapshot))
        node.alerts = sighting.alerts
        node.past = sighting.past
        node.processes = sighting.processes
        node.age = sighting.age + max(mono - sighting.mono, 0.0)
        return node

    def _stale(self, nodes: Sequence[NodeView]) -> list[NodeIssue]:
        limit = max(STALE_SECONDS, STALE_INTERVALS * self._interval)
        return [
            NodeIssue(Tone.WARN, f"{node.name}: what is shown is {age(node.age)} old")
            for node in nodes
            if node.age is not None and node.age > limit
        ]
