"""Puts a site together: numbers racks and nodes, deals scenarios out to them, and places jobs and faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from agent.backends.synthetic.activity import hash64, uniform
from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import Scenario
from agent.commands.simulate.job_spans import NodeDraft, Span, join
from agent.commands.simulate.site_model import Outage, SimulatedSite, SiteNode, SiteRack

_DEAL, _NODE = 91, 92
"""What the seed is mixed with, so that dealing and nodes do not share their chance."""


@dataclass(frozen=True, slots=True)
class Share:
    """A scenario and its weight among those that are dealt out."""

    scenario: Scenario
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RackPlan:
    """Racks that are alike. `shares` are what their nodes may play."""

    prefix: str
    count: int
    nodes: int
    topology: MachineType
    shares: tuple[Share, ...]
    budget: float | None


def lay_out(plans: Sequence[RackPlan]) -> tuple[list[NodeDraft], list[SiteRack], list[RackPlan]]:
    """The nodes, the racks, and the plan of each node, in the order of the plans."""
    drafts: list[NodeDraft] = []
    racks: list[SiteRack] = []
    planned: list[RackPlan] = []
    counted: dict[str, int] = {}
    for plan in plans:
        for _ in range(plan.count):
            number = counted[plan.prefix] = counted.get(plan.prefix, 0) + 1
            rack = f"{plan.prefix}{number}"
            names = tuple(f"node{len(drafts) + each + 1}" for each in range(plan.nodes))
            racks.append(SiteRack(rack, names, plan.budget))
            drafts += [NodeDraft(name, rack, plan.topology) for name in names]
            planned += [plan] * plan.nodes
    return drafts, racks, planned


def deal(drafts: Sequence[NodeDraft], planned: Sequence[RackPlan], width: int, seed: int) -> list[Span]:
    """Have each node without a job play a scenario; a scenario's jobs span `width` neighbours that play the same."""
    spans: list[Span] = []
    for number, (group, plan) in enumerate(_neighbours(drafts, planned, width), 1):
        scenario = _chosen(plan.shares, uniform(seed, _DEAL, number))
        jobs = [replace(job, id=f"{job.id}_{number}") for job in scenario.jobs]
        for draft in group:
            draft.title = scenario.name
            draft.jobs += jobs
            draft.faults += scenario.faults
        spans += [[(draft, place) for draft in group] for place in range(len(jobs))]
    return spans


def _neighbours(
    drafts: Sequence[NodeDraft], planned: Sequence[RackPlan], width: int
) -> Iterator[tuple[list[NodeDraft], RackPlan]]:
    """The nodes that have no job yet, so many of one plan at a time."""
    free = ((draft, plan) for draft, plan in zip(drafts, planned, strict=True) if not draft.jobs)
    for _, same in groupby(free, lambda each: id(each[1])):
        members = [draft for draft, _ in same]
        plan = planned[drafts.index(members[0])]
        for start in range(0, len(members), width):
            yield members[start : start + width], plan


def _chosen(shares: Sequence[Share], chance: float) -> Scenario:
    left = chance * sum(each.weight for each in shares)
    for each in shares:
        left -= each.weight
        if left < 0.0:
            return each.scenario
    return shares[-1].scenario


def finish(
    cluster: str, seed: int, drafts: Sequence[NodeDraft], racks: Sequence[SiteRack], spans: Sequence[Span],
    outages: Sequence[Outage],
) -> SimulatedSite:  # fmt: skip
    """The site, once all jobs and faults are in place."""
    for span in spans:
        join(span)
    nodes = (SiteNode(draft.name, draft.rack, _scenario(draft, seed, number)) for number, draft in enumerate(drafts))
    return SimulatedSite(cluster, tuple(nodes), tuple(racks), tuple(outages))


def _scenario(draft: NodeDraft, seed: int, number: int) -> Scenario:
    return Scenario(
        draft.title or "idle", "", draft.topology, hash64(seed, _NODE, number), tuple(draft.jobs), tuple(draft.faults),
        awaited=tuple(draft.awaited),
    )  # fmt: skip
