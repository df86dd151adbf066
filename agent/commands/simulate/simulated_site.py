"""A simulated site as data: its racks and nodes, what each node plays, and when nodes do not answer.

A job's phases are in step by themselves, because they begin at the same moment on all its nodes. Only the faults for
which the whole job waits, and the loss of one of its nodes, are passed on to the other nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from agent.backends.synthetic.activity import hash64, uniform
from agent.backends.synthetic.gpu_history import WHOLE_JOB
from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import AwaitedFault, Scenario, ScenarioFault, ScenarioJob, Window


class OutageCause(Enum):
    """Why a node does not answer."""

    AGENT = "agent-down"  # the agent alone: the node and its jobs go on
    POWER = "power-loss"  # the whole node: its jobs wait on their other nodes


class SiteNode(Struct, frozen=True):
    """A node, the rack that it is in, and what it plays."""

    name: str
    rack: str
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


class ScenarioShare(Struct, frozen=True):
    """A scenario and its weight among those that are dealt out."""

    scenario: Scenario
    weight: float = 1.0


class RackPlan(Struct, frozen=True):
    """Racks that are alike. `shares` are what their nodes may play."""

    prefix: str
    count: int
    nodes: int
    topology: MachineType
    shares: tuple[ScenarioShare, ...]
    budget: float | None


class NodeDraft(Struct):
    """A node while its site is put together. `losses` is when it has no power."""

    name: str
    rack: str
    plan: RackPlan
    title: str = ""
    jobs: list[ScenarioJob] = field(default_factory=list)
    faults: list[ScenarioFault] = field(default_factory=list)
    losses: list[Window] = field(default_factory=list)
    awaited: list[AwaitedFault] = field(default_factory=list)


Span = Sequence[tuple[NodeDraft, int]]
"""The nodes of one job, each with the job's place among those of the node."""


def link_waiting_nodes(span: Span) -> None:
    """Let each node of a job know what the job waits for."""
    if len(span) < 2:
        return
    sources: dict[Kin, tuple[ScenarioFault, dict[str, tuple[int, ...]]]] = {}
    for draft, place in span:
        for fault in _halting(draft, draft.jobs[place]):
            kin = (fault.kind, fault.window, tuple(sorted(fault.parameters.items())))
            _, holders = sources.setdefault(kin, (fault, {}))
            holders[draft.name] = holders.get(draft.name, ()) + fault.gpus
    for draft, place in span:
        draft.awaited += [AwaitedFault(place, fault) for fault in _awaited_by(draft.name, sources.values())]


def _halting(draft: NodeDraft, job: ScenarioJob) -> Iterator[ScenarioFault]:
    """Yield the faults of a node for which the job waits."""
    for fault in draft.faults:
        if fault.kind in AWAITED and not set(job.gpus).isdisjoint(fault.gpus):
            yield fault
    for window in draft.losses:
        yield ScenarioFault(LOST_NODE, window)


def _awaited_by(
    name: str, sources: Iterable[tuple[ScenarioFault, Mapping[str, tuple[int, ...]]]]
) -> Iterator[ScenarioFault]:
    """Yield what a node waits for: what other nodes have, and its own straggler, for which its own GPUs wait no
    less.
    """
    for fault, holders in sources:
        own = holders.get(name, ())
        if len(holders) > (name in holders) or fault.kind == "straggler":
            yield replace(fault, gpus=own)


_DEAL, _NODE = 91, 92
"""What the seed is mixed with, so that dealing and nodes do not share their chance."""


def build_nodes(plans: Sequence[RackPlan]) -> tuple[list[NodeDraft], list[SiteRack]]:
    """Return the nodes and the racks, in the order of the plans."""
    drafts: list[NodeDraft] = []
    racks: list[SiteRack] = []
    counted: Counter[str] = Counter()
    for plan in plans:
        for _ in range(plan.count):
            counted[plan.prefix] += 1
            rack = f"{plan.prefix}{counted[plan.prefix]}"
            names = tuple(f"node{len(drafts) + each + 1}" for each in range(plan.nodes))
            racks.append(SiteRack(rack, names, plan.budget))
            drafts += [NodeDraft(name, rack, plan) for name in names]
    return drafts, racks


def assign_scenarios(drafts: Sequence[NodeDraft], width: int, seed: int) -> list[Span]:
    """Have each node without a job play a scenario; a scenario's jobs span `width` neighbours that play the same."""
    spans: list[Span] = []
    for number, group in enumerate(_neighbours(drafts, width), 1):
        scenario = _chosen(group[0].plan.shares, uniform(seed, _DEAL, number))
        jobs = [replace(job, id=f"{job.id}_{number}") for job in scenario.jobs]
        for draft in group:
            draft.title = scenario.name
            draft.jobs += jobs
            draft.faults += scenario.faults
        spans += [[(draft, place) for draft in group] for place in range(len(jobs))]
    return spans


def _neighbours(drafts: Sequence[NodeDraft], width: int) -> Iterator[list[NodeDraft]]:
    """Yield the nodes without a job, in groups of this size within one plan."""
    free = [draft for draft in drafts if not draft.jobs]
    for _, same in groupby(free, lambda draft: id(draft.plan)):
        members = list(same)
        yield from (members[start : start + width] for start in range(0, len(members), width))


def _chosen(shares: Sequence[ScenarioShare], chance: float) -> Scenario:
    left = chance * sum(each.weight for each in shares)
    for each in shares:
        left -= each.weight
        if left < 0.0:
            return each.scenario
    return shares[-1].scenario


def build_site(
    cluster: str, seed: int, drafts: Sequence[NodeDraft], racks: Sequence[SiteRack], *, spans: Sequence[Span],
    outages: Sequence[Outage],
) -> SimulatedSite:  # fmt: skip
    """Return the site, once all jobs and faults are in place."""
    for span in spans:
        link_waiting_nodes(span)
    nodes = (SiteNode(draft.name, draft.rack, _scenario(draft, seed, number)) for number, draft in enumerate(drafts))
    return SimulatedSite(cluster, tuple(nodes), tuple(racks), tuple(outages))


def _scenario(draft: NodeDraft, seed: int, number: int) -> Scenario:
    return Scenario(
        draft.title or "idle", "", draft.plan.topology, hash64(seed, _NODE, number), tuple(draft.jobs),
        tuple(draft.faults), awaited=tuple(draft.awaited),
    )  # fmt: skip
