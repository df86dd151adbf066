"""The kernel log, which tells XIDs even when the driver hangs, and SXids at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.backends.sysfs import text
from agent.commands.doctor.agent_user import READ
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode, whole

RANK = 50
KERNEL_LOG = Diagnoses("kernel log")
HANDED = "StandardInput=file:/dev/kmsg"
REMEDY = f"in the unit, as in packaging/systemd/coldplate.service: {HANDED} and DeviceAllow=/dev/kmsg r"


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """One, where GPUs of this node are read."""
    if node.has_driver:
        yield KERNEL_LOG.check(node.root / "dev/kmsg", _look, node)


def _look(node: ExaminedNode) -> Iterator[Diagnosis]:
    path = node.root / "dev/kmsg"
    if node.agent is not None and node.agent.reports:
        told = next((each for each in node.agent.gaps if each.backend == "kmsg" and each.reason == "denied"), None)
        report = next((each for each in node.agent.reports if each.backend == "kmsg"), None)
        if told is not None:
            yield KERNEL_LOG.warn(f"the agent may not read it: {told.detail}", REMEDY)
        elif report is not None and report.outcome != "ok":
            yield KERNEL_LOG.warn(f"the agent does not read it: {report.detail or report.outcome}", REMEDY)
        elif report is not None:
            yield KERNEL_LOG.ok("the agent reads it")
        return
    if not path.exists():
        yield KERNEL_LOG.warn(f"{path} is not there: XIDs come only from the driver", "pass it into the container")
    elif node.unit is not None and HANDED in whole(node.unit):
        yield KERNEL_LOG.ok("systemd opens it for the agent")
    elif not node.user.overrides and (_is_restricted(node) or not node.user.may(READ, path.stat())):
        yield KERNEL_LOG.warn(f"{node.user.name} may not read {path}: XIDs come only from the driver", REMEDY)
    else:
        yield KERNEL_LOG.ok(f"{node.user.name} may read {path}")


def _is_restricted(node: ExaminedNode) -> bool:
    """Whether it takes CAP_SYSLOG (kernel.dmesg_restrict, Documentation/admin-guide/sysctl/kernel.rst)."""
    try:
        return text(node.procfs / "sys/kernel/dmesg_restrict", 8) == "1"
    except OSError:
        return False
