"""The last minutes of each GPU, for sparklines. A sample without a value leaves a hole, not a line at zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from agent.commands.top.screen.node_view import GpuView, NodeView

MOST = 600
"""Samples that are kept of a GPU."""


class History:
    """Remembers busy share and power by GPU, one sample for each new moment of its node."""

    def __init__(self) -> None:
        self._busy: dict[tuple[str, str], deque[float | None]] = {}
        self._power: dict[tuple[str, str], deque[float | None]] = {}
        self._walls: dict[str, float | None] = {}

    def take(self, nodes: Iterable[NodeView]) -> None:
        """Add what is new, and give each GPU its history."""
        for node in nodes:
            fresh = node.wall is not None and self._walls.get(node.name) != node.wall
            self._walls[node.name] = node.wall
            for gpu in node.gpus:
                gpu.busy_history = self._noted(self._busy, gpu, gpu.row.busy, fresh)
                gpu.power_history = self._noted(self._power, gpu, gpu.value("power_watts"), fresh)

    def _noted(
        self, histories: dict[tuple[str, str], deque[float | None]], gpu: GpuView, value: float | None, fresh: bool
    ) -> tuple[float | None, ...]:
        history = histories.setdefault(gpu.key, deque(maxlen=MOST))
        if fresh:
            history.append(value)
        return tuple(history)
