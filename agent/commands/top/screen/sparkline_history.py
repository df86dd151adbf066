"""The last minutes of each GPU, for sparklines. A sample without a value leaves a hole, not a line at zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.commands.top.screen.node_view import GpuView, NodeView
from agent.model import Gpu, PastMoment

MOST = 600
"""Samples that are kept of a GPU."""
BUSY, POWER = "coldplate_gpu_utilization_ratio", "coldplate_gpu_power_watts"
_EARLY = 0.9
"""Share of the interval after which a remembered sample may follow another: their times are not quite even."""

_Line = deque[float | None]


class History:
    """Remembers busy share and power by GPU, one sample for each new moment of its node.

    What a node's agent remembers of the time before is put in front, once, as far apart as `interval` seconds.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lines: dict[str, dict[tuple[str, str], _Line]] = {BUSY: {}, POWER: {}}
        self._walls: dict[str, float | None] = {}
        self._begun: dict[str, float] = {}
        self._prefixed: set[str] = set()

    def take(self, nodes: Iterable[NodeView]) -> None:
        """Add what is new, and give each GPU its history."""
        for node in nodes:
            fresh = node.wall is not None and self._walls.get(node.name) != node.wall
            self._walls[node.name] = node.wall
            for gpu in node.gpus:
                self._note(gpu, fresh)
            if node.wall is not None:
                self._begun.setdefault(node.name, node.wall)
                self._prefix(node)
            for gpu in node.gpus:
                gpu.busy_history = tuple(self._lines[BUSY][gpu.key])
                gpu.power_history = tuple(self._lines[POWER][gpu.key])

    def _note(self, gpu: GpuView, fresh: bool) -> None:
        for name, value in ((BUSY, gpu.row.busy), (POWER, gpu.value("power_watts"))):
            line = self._lines[name].setdefault(gpu.key, deque(maxlen=MOST))
            if fresh:
                line.append(value)

    def _prefix(self, node: NodeView) -> None:
        if not node.past or node.name in self._prefixed:
            return
        self._prefixed.add(node.name)
        moments = [_values(moment) for moment in self._before(node.past, self._begun[node.name])]
        for gpu in node.gpus:
            for name, lines in self._lines.items():
                line = lines[gpu.key]
                line.extendleft(moment.get((name, gpu.row.gpu)) for moment in moments[: MOST - len(line)])

    def _before(self, past: Sequence[PastMoment], wall: float) -> Iterator[PastMoment]:
        """The moments before this one, the newest first."""
        for moment in reversed(past):
            if wall - moment.wall >= self._interval * _EARLY:
                wall = moment.wall
                yield moment


def _values(moment: PastMoment) -> Mapping[tuple[str, object], float]:
    return {
        (series.metric.name, series.entity): value
        for layout, values in moment.parts
        for series, value in zip(layout.series, values, strict=True)
        if isinstance(series.entity, Gpu)
    }
