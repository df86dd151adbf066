"""What the agent does not see that is there: what its unit's sandbox, a container or its user hides from it.

The agent's own gaps are compared with what doctor sees from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.backends.sysfs import list_names
from agent.commands.doctor.agent_view import AgentView, ToldGap
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.lib.wording import one_line

RANK = 190
SANDBOX = Diagnoses("sandbox")
TABLE = 'the table "Privileges" of docs/operations.md'
SHIPPED = "compare systemctl cat coldplate.service with packaging/systemd/coldplate.service"


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, by what the running agent said."""
    yield SANDBOX.check(node.target.shown, _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    view = node.agent
    if view is None:
        yield SANDBOX.ok("no agent runs whose view could be compared")
        return
    if view.is_synthetic or view.is_paused:
        why = "its devices are synthetic" if view.is_synthetic else "it has released the driver"
        yield SANDBOX.ok(f"{why}: nothing to compare")
        return
    found = [*_denied(view), *_unseen(node, view)]
    yield from found or [SANDBOX.ok("the agent sees what doctor sees")]


def _denied(view: AgentView) -> Iterator[Diagnosis]:
    """One finding for each reason, which may hide many metrics."""
    denied: dict[str, list[ToldGap]] = {}
    for gap in view.gaps:
        if gap.reason == "denied":
            denied.setdefault(gap.detail or gap.backend, []).append(gap)
    for detail, gaps in denied.items():
        named = sorted({gap.metric for gap in gaps})
        more = f" and {len(named) - 1} more" if named[1:] else ""
        yield SANDBOX.warn(one_line(f"{named[0]}{more} is denied: {detail}"), f"what the line names; else {TABLE}")


def _unseen(node: ExaminedNode, view: AgentView) -> Iterator[Diagnosis]:
    up = sum(view.values("coldplate_gpu_up"))
    if node.has_driver and len(node.gpus) > len(view.values("coldplate_gpu_up")):
        yield SANDBOX.fail(
            f"the PCI bus has {len(node.gpus)} GPUs, and the agent knows {len(view.values('coldplate_gpu_up'))} "
            f"({up:.0f} up)",
            f"DeviceAllow=char-nvidia and its like: {SHIPPED}; in a container, pass /dev/nvidia* in",
        )
    try:
        adapters = set(list_names(node.sysfs / "class/infiniband"))
    except OSError:
        adapters = set()
    known = {
        each.labels.get("device", "")
        for name, all_of in view.readings.items()
        if "infiniband" in name
        for each in all_of
    }
    if node.config.backends.infiniband and adapters - known:
        missed = ", ".join(sorted(adapters - known)[:4])
        yield SANDBOX.warn(
            f"sysfs has {missed}, and the agent does not", f"{SHIPPED}; in a container, mount the host's /sys"
        )
