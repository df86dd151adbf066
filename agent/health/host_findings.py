"""Findings of faults of the host: filesystems that do not answer, Fabric Manager, errors of its memory."""

from __future__ import annotations

from agent.health.expectations import Expected
from agent.health.seen_node import SeenNode
from agent.health.verdicts import HealthFinding, Verdict

MOUNT_UP = "coldplate_node_mount_up"
FABRIC_MANAGER = "coldplate_node_fabric_manager_up"
MEMORY_ERRORS = "coldplate_node_memory_errors_total"
METRICS = (MOUNT_UP, FABRIC_MANAGER, MEMORY_ERRORS)


def mounts(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether every network filesystem answers."""
    name, expectation, seen = "mounts", "every network filesystem answers", view.all(MOUNT_UP)
    if not seen:
        return HealthFinding(name, Verdict.SKIPPED, expectation, "the node has no network filesystem")
    down = [f"{each.labels['mountpoint']} ({each.labels['fstype']})" for each in seen if not each.value]
    if down:
        remedy = "see whether its server answers other nodes: runbook NodeMountDown"
        return HealthFinding(name, Verdict.CRITICAL, expectation, f"no answer from {', '.join(down)}", remedy)
    return HealthFinding(name, Verdict.OK, expectation, f"{len(seen)} answer")


def fabric_manager(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether Fabric Manager runs, where the node's board needs it."""
    name, expectation, seen = "fabric-manager", "Fabric Manager runs", view.all(FABRIC_MANAGER)
    if not seen:
        return HealthFinding(
            name, Verdict.SKIPPED, expectation, "the host has no NVSwitch, or processes cannot be seen"
        )
    if seen[0].value:
        return HealthFinding(name, Verdict.OK, expectation, "it runs")
    remedy = "systemctl restart nvidia-fabricmanager; its version must be the driver's"
    return HealthFinding(name, Verdict.CRITICAL, expectation, "it does not run, and CUDA cannot start", remedy)


def memory_errors(view: SeenNode, expected: Expected) -> HealthFinding:  # noqa: ARG001 - all checks have one shape
    """Return whether the host's memory has had no uncorrected error since the kernel began to count."""
    name, expectation = "memory-errors", "the host's memory has no uncorrected error"
    counts = [each.value for each in view.all(MEMORY_ERRORS) if each.labels["type"] == "uncorrected"]
    if not counts:
        return HealthFinding(name, Verdict.SKIPPED, expectation, "the kernel does not count them")
    if counts[0]:
        remedy = "find the module in /sys/devices/system/edac, and have it replaced: runbook NodeMemoryErrors"
        return HealthFinding(name, Verdict.WARNING, expectation, f"{counts[0]:.0f} since boot", remedy)
    return HealthFinding(name, Verdict.OK, expectation, "none")
