"""A simulated site as data: its racks and nodes, what each node plays, and when nodes do not answer.

A job's phases are in step by themselves, because they begin at the same moment on all its nodes. Only the faults for
which the whole job waits, and the loss of one of its nodes, are passed on to the other nodes.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import accumulate, groupby

from msgspec import Struct
from msgspec.structs import replace

from agent.backends.synthetic.activity import hash64, uniform
from agent.backends.synthetic.gpu_history import WHOLE_JOB
from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import AwaitedFault, Scenario, ScenarioFault, ScenarioJob, Window


class OutageCause(Enum):
    """Why a node does not answer."""

    AGENT = "agent-down"  # the agent alone: the node and its jobs go on
    POWER = "power-loss"  # the whole node: its jobs wait on their other nodes


class RackPlan(Struct, frozen=True):
    """Racks that are alike. Their nodes play one of the `scenarios`, which are dealt out by weight."""

    prefix: str
    count: int
    nodes: int
    topology: MachineType
    scenarios: tuple[tuple[Scenario, float], ...]
    budget: float | None


class SiteNode(Struct):
    """A node, the rack that it is in, and what it plays."""

    name: str
    rack: str
    plan: RackPlan
    scenario: Scenario


class SiteRack(Struct, frozen=True):
    """A rack. `budget` in watts, None if it has none."""

    name: str
    nodes: tuple[str, ...]
    budget: float | None = None


class Outage(Struct, frozen=True):
    """Nodes that do not answer while the window holds; its times are seconds from the start of the simulation."""

    loss: OutageCause
    window: Window
    nodes: frozenset[str]


class SimulatedSite(Struct, frozen=True):
    """Everything that is simulated. The same site gives the same readings at the same second."""

    cluster: str
    nodes: tuple[SiteNode, ...]
    racks: tuple[SiteRack, ...]
    outages: tuple[Outage, ...] = ()


AWAITED = WHOLE_JOB | {"straggler"}
"""Faults of a GPU for which a job that spans nodes waits."""
LOST_NODE = "lost"
"""As what the others of a job see a node without power."""

Kin = tuple[str, Window, tuple[tuple[str, float], ...]]
"""What makes two faults look the same from another node."""


Span = Sequence[tuple[SiteNode, int]]
"""The nodes of one job, each with the job's place among those of the node."""


def link_waiting_nodes(span: Span, outages: Sequence[Outage]) -> None:
    """Let each node of a job know what the job waits for."""
    if len(span) < 2:
        return
    sources: dict[Kin, tuple[ScenarioFault, dict[str, tuple[int, ...]]]] = {}
    for node, place in span:
        for fault in _halting(node, node.scenario.jobs[place], outages):
            kin = (fault.kind, fault.window, tuple(sorted(fault.parameters.items())))
            _, holders = sources.setdefault(kin, (fault, {}))
            holders[node.name] = holders.get(node.name, ()) + fault.gpus
    for node, place in span:
        awaited = (AwaitedFault(place, fault) for fault in _awaited_by(node.name, sources.values()))
        node.scenario = replace(node.scenario, awaited=(*node.scenario.awaited, *awaited))


def _halting(node: SiteNode, job: ScenarioJob, outages: Sequence[Outage]) -> Iterator[ScenarioFault]:
    """Yield the faults of a node for which the job waits."""
    for fault in node.scenario.faults:
        if fault.kind in AWAITED and not set(job.gpus).isdisjoint(fault.gpus):
            yield fault
    for outage in outages:
        if outage.loss is OutageCause.POWER and node.name in outage.nodes:
            yield ScenarioFault(LOST_NODE, outage.window)


def _awaited_by(
    name: str, sources: Iterable[tuple[ScenarioFault, Mapping[str, tuple[int, ...]]]]
) -> Iterator[ScenarioFault]:
    """Yield what a node waits for: other nodes' stragglers, and its own, for which its own GPUs wait no less."""
    for fault, holders in sources:
        own = holders.get(name, ())
        if len(holders) > (name in holders) or fault.kind == "straggler":
            yield replace(fault, gpus=own)


_DEAL, _NODE = 91, 92
"""What the seed is mixed with, so that dealing and nodes do not share their chance."""


def build_nodes(plans: Sequence[RackPlan], seed: int) -> tuple[list[SiteNode], list[SiteRack]]:
    """Return the nodes, which are idle, and the racks, in the order of the plans."""
    nodes: list[SiteNode] = []
    racks: list[SiteRack] = []
    counted: Counter[str] = Counter()
    for plan in plans:
        for _ in range(plan.count):
            counted[plan.prefix] += 1
            rack = f"{plan.prefix}{counted[plan.prefix]}"
            numbers = range(len(nodes), len(nodes) + plan.nodes)
            idle = (Scenario("idle", "", plan.topology, hash64(seed, _NODE, number)) for number in numbers)
            nodes += [
                SiteNode(f"node{number + 1}", rack, plan, scenario)
                for number, scenario in zip(numbers, idle, strict=True)
            ]
            racks.append(SiteRack(rack, tuple(node.name for node in nodes[-plan.nodes :]), plan.budget))
    return nodes, racks


def assign_scenarios(nodes: Sequence[SiteNode], width: int, seed: int) -> list[Span]:
    """Have each node without a job play a scenario; a scenario's jobs span `width` neighbours that play the same."""
    spans: list[Span] = []
    for number, group in enumerate(_neighbours(nodes, width), 1):
        scenario = _chosen(group[0].plan.scenarios, uniform(seed, _DEAL, number))
        jobs = tuple(replace(job, id=f"{job.id}_{number}") for job in scenario.jobs)
        for node in group:
            faults = (*node.scenario.faults, *scenario.faults)
            node.scenario = replace(node.scenario, name=scenario.name, jobs=jobs, faults=faults)
        spans += [[(node, place) for node in group] for place in range(len(jobs))]
    return spans


def _neighbours(nodes: Sequence[SiteNode], width: int) -> Iterator[list[SiteNode]]:
    """Yield the nodes without a job, in groups of this size within one plan."""
    free = [node for node in nodes if not node.scenario.jobs]
    for _, same in groupby(free, lambda node: id(node.plan)):
        members = list(same)
        yield from (members[start : start + width] for start in range(0, len(members), width))


def _chosen(scenarios: Sequence[tuple[Scenario, float]], chance: float) -> Scenario:
    sums = list(accumulate(weight for _, weight in scenarios))
    return scenarios[min(bisect_right(sums, chance * sums[-1]), len(sums) - 1)][0]
