"""All that one picture shows, whoever draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.commands.top.screen.diagnosis import Complaint
from agent.commands.top.screen.node_view import NodeView


@dataclass(frozen=True, slots=True)
class Scene:
    """Nodes and what is wrong with them. `interval` in seconds."""

    nodes: Sequence[NodeView]
    troubles: Sequence[Complaint]
    interval: float

    @property
    def wall(self) -> float | None:
        """The newest time of its nodes."""
        return max((node.wall for node in self.nodes if node.wall is not None), default=None)
