"""Joins the nodes of a site by their jobs: a fault on one node makes the GPUs of the job's other nodes wait.

A job's phases are in step by themselves, because they begin at the same moment on all its nodes. What has to be passed
on is the faults for which the whole job waits, and the loss of one of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.backends.synthetic.gpu_history import WHOLE_JOB
from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import AwaitedFault, ScenarioFault, ScenarioJob, Window

AWAITED = WHOLE_JOB | {"straggler"}
"""Faults of a GPU for which a job that spans nodes waits."""
LOST_NODE = "lost"
"""As what the others of a job see a node without power."""

Kin = tuple[str, Window, tuple[tuple[str, float], ...]]
"""What makes two faults look the same from another node."""


@dataclass(slots=True)
class NodeDraft:
    """A node while its site is put together. `losses` is when it has no power."""

    name: str
    rack: str
    topology: MachineType
    title: str = ""
    jobs: list[ScenarioJob] = field(default_factory=list)
    faults: list[ScenarioFault] = field(default_factory=list)
    losses: list[Window] = field(default_factory=list)
    awaited: list[AwaitedFault] = field(default_factory=list)


Span = Sequence[tuple[NodeDraft, int]]
"""The nodes of one job, each with the job's place among those of the node."""


def join(span: Span) -> None:
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
    """The faults of a node for which the job waits."""
    for fault in draft.faults:
        if fault.kind in AWAITED and not set(job.gpus).isdisjoint(fault.gpus):
            yield fault
    for window in draft.losses:
        yield ScenarioFault(LOST_NODE, window)


def _awaited_by(
    name: str, sources: Iterable[tuple[ScenarioFault, Mapping[str, tuple[int, ...]]]]
) -> Iterator[ScenarioFault]:
    """What a node waits for: what other nodes have, and its own straggler, for which its own GPUs wait no less."""
    for fault, holders in sources:
        own = holders.get(name, ())
        if len(holders) > (name in holders) or fault.kind == "straggler":
            yield replace(fault, gpus=own)
