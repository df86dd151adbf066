"""Whether the agent sees other users' processes: jobs are told by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode, whole

RANK = 80
PROCESSES = Diagnoses("processes")
SEEN = frozenset({"0", "off", "1", "noaccess"})
"""Values of hidepid= with which /proc/PID is seen (proc(5)); with 1, it cannot be looked into."""


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, by the options that procfs is mounted with."""
    if node.has_driver and node.config.jobs.sources:
        yield PROCESSES.check(node.procfs / "mounts", _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    lines = (line.split() for line in whole(node.procfs / "self/mounts").splitlines())
    options = next((each[3].split(",") for each in lines if len(each) > 3 and each[1:3] == ["/proc", "proc"]), [])
    told = dict(each.partition("=")[::2] for each in options)
    hidden, group = told.get("hidepid", "0"), told.get("gid", "")
    allowed = node.user.overrides or (group.isdigit() and int(group) in node.user.groups)
    if hidden in ("0", "off") or allowed:
        yield PROCESSES.ok("all are seen" if hidden in ("0", "off") else f"hidepid={hidden}, and the agent is exempt")
        return
    yield PROCESSES.warn(
        f"/proc is mounted with hidepid={hidden}: {node.user.name} sees no processes of others, and so not their jobs",
        "mount -o remount,hidepid=0 /proc; or gid=GROUP there and SupplementaryGroups=GROUP in the unit",
    )
