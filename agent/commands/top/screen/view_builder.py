"""Build the data of one screen, independent of the renderer: rates, histories, and the lines that say what is wrong.

The rules judge, those of each node's agent or of this command. The view joins their conditions with the devices.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from agent.commands.top.screen.node_samples import NodeSample, Traffic
from agent.commands.top.screen.node_view import GpuView, NodeHistory, NodeView, view_of
from agent.health.conditions import DeviceConditions
from agent.health.evaluated_rules import NO_RULES
from agent.lib.wording import age, index_runs
from exporters.headlines import WORDS, Headline, condition_lines, unjudged_line, unknown_line
from exporters.markup import Tone

MOST_NAMES = 3
"""Nodes that a line names; of more it says how many."""


def headlines(nodes: Sequence[NodeView]) -> list[Headline]:
    """Return what is wrong with the nodes and what is not known, the worst first. Nodes of one line share it."""
    by_line: dict[Headline, list[str]] = {}
    for node in nodes:
        for line in _of_node(node):
            by_line.setdefault(line, []).append(node.name)
    lines = [
        line._replace(text=f"{_names(names)}: {line.text}") if len(nodes) > 1 else line
        for line, names in by_line.items()
    ]
    return sorted(lines, key=lambda line: line.tone)


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _of_node(node: NodeView) -> Iterator[Headline]:
    if node.problem:
        yield Headline(Tone.BAD, WORDS[Tone.BAD], node.problem)
        return
    yield from condition_lines(node.alerts or (), node.wall)
    yield from node.unread
    if node.unjudged:
        yield unjudged_line(node.unjudged)


def join_conditions(node: NodeView) -> None:
    """Give each GPU and port the conditions that name it, and each GPU its state."""
    conditions = DeviceConditions(node.alerts or (), is_judged=not node.unjudged)
    for gpu in node.gpus:
        gpu.row.conditions, gpu.row.is_judged = conditions.conditions_of(gpu.row.gpu), conditions.is_judged
        gpu.row.state = gpu.doing if node.states is None else node.states.get(gpu.row.gpu, "")
    for port in node.ports:
        port.conditions = conditions
    node.ports.sort(key=lambda port: (min(port.tone, Tone.CALM), len(port.name), port.name))


def gpu_names(gpus: Sequence[GpuView], many: bool) -> str:
    """Return GPUs in short; of several nodes each with its node."""
    places: dict[str, list[GpuView]] = {}
    for gpu in gpus:
        places.setdefault(gpu.node, []).append(gpu)
    runs = ((node, index_runs((gpu.index for gpu in node_gpus), "–", 2)) for node, node_gpus in places.items())
    return ", ".join(f"{node} GPU {indexes}" if many else f"GPU {indexes}" for node, indexes in runs)


class ScreenData(Struct, frozen=True):
    """Nodes and what is wrong with them. `interval` in seconds, `wall` the newest time of a node; None without any."""

    nodes: Sequence[NodeView]
    troubles: Sequence[Headline]
    interval: float
    wall: float | None = None


STALE_INTERVALS = 4
STALE_SECONDS = 5.0
"""Seconds after which data are said to be old, unless the multiple of the interval is longer."""


class ViewKeeper:
    """Keeps what has to be remembered between two pictures. `interval` in seconds. For one thread."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._own_names: dict[str, str] = {}
        """The names that agents give their nodes, by what they were asked by."""
        self._by_name = defaultdict[str, tuple[Traffic, NodeHistory]](lambda: (Traffic(), NodeHistory(interval)))

    def scene(self, samples: Sequence[NodeSample], mono: float, view_note: str = "") -> ScreenData:
        """Return what is shown at a monotonic second; `view_note` is a line about the view itself."""
        self._own_names.update((sample.name, sample.node) for sample in samples if sample.node)
        counts = Counter(self._own_names.get(sample.name, sample.name) for sample in samples)
        nodes = [self._node(sample, self._shown_name(sample.name, counts), mono) for sample in samples]
        wall = max((node.wall for node in nodes if node.wall is not None), default=None)
        notes = [unknown_line(view_note)] if view_note else []
        return ScreenData(nodes, [*self._stale(nodes), *headlines(nodes), *notes], self._interval, wall)

    def _shown_name(self, name: str, counts: Mapping[str, int]) -> str:
        """Return the node's own name, as on its page, with what it was asked by where several have that name."""
        own = self._own_names.get(name, name)
        return own if counts[own] == 1 or own == name else f"{own} ({name})"

    def _node(self, sample: NodeSample, name: str, mono: float) -> NodeView:
        if sample.snapshot is None:
            return NodeView(name, sample.origin, problem=sample.problem or "nothing known yet")
        traffic, history = self._by_name[sample.name]
        traffic.add_snapshot(sample.snapshot)
        node = view_of(name, sample.origin, sample.snapshot, traffic)
        node.alerts, node.processes = sample.alerts, sample.processes
        node.states = sample.states
        node.unjudged = NO_RULES if node.alerts is None else sample.unjudged
        node.age = sample.age + max(mono - sample.mono, 0.0)
        join_conditions(node)
        history.add_sample(node, sample.past)
        return node

    def _stale(self, nodes: Sequence[NodeView]) -> list[Headline]:
        limit = max(STALE_SECONDS, STALE_INTERVALS * self._interval)
        return [
            Headline(Tone.WARN, WORDS[Tone.WARN], f"{node.name}: what is shown is {age(node.age)} old")
            for node in nodes
            if node.age is not None and node.age > limit
        ]
