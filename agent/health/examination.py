"""Holds a snapshot against the expectations: every check in one table, and the findings of all of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from agent.health import fault_findings, gpu_findings, link_findings, port_findings
from agent.health.expectation_files import recognised
from agent.health.expected_node import Expected
from agent.health.gpu_findings import Judge
from agent.health.seen_node import SeenNode
from agent.health.verdicts import HealthFinding
from agent.model import Snapshot

METRICS = (*gpu_findings.METRICS, *link_findings.METRICS, *port_findings.METRICS, *fault_findings.METRICS)


class Check(NamedTuple):
    """One check. `is_fact`: it holds what the node is, not how it is doing, against what it should be."""

    name: str
    judge: Judge
    is_fact: bool = True


CHECKS = (
    Check("gpus-present", gpu_findings.present, False),
    Check("gpu-count", gpu_findings.count),
    Check("gpu-model", gpu_findings.model),
    Check("gpu-memory", gpu_findings.memory),
    Check("gpus-alike", gpu_findings.alike),
    Check("ecc", gpu_findings.ecc),
    Check("persistence", gpu_findings.persistence),
    Check("power-limit", gpu_findings.power_limit),
    Check("temperature", gpu_findings.temperature, False),
    Check("throttling", fault_findings.throttling, False),
    Check("row-remaps", fault_findings.row_remaps, False),
    Check("recovery-action", fault_findings.recovery, False),
    Check("pcie-generation", link_findings.pcie_generation),
    Check("pcie-width", link_findings.pcie_width),
    Check("nvlinks", link_findings.nvlinks),
    Check("nvlink-speed", link_findings.nvlink_speed),
    Check("fabric", link_findings.fabric),
    Check("infiniband-ports", port_findings.ports),
    Check("infiniband-rate", port_findings.rate),
    Check("nearest-hca", port_findings.nearest_hca),
    Check("rack-nodes", port_findings.rack_nodes),
)
FACTS = frozenset(check.name for check in CHECKS if check.is_fact)
"""The checks that the running agent makes all the time; alerts of their own tell of the others."""


def view_of(snapshot: Snapshot, devices: str = "") -> SeenNode:
    """The part of a snapshot that the checks read; `devices` is the family of devices in it, where that is known."""
    return SeenNode(snapshot, METRICS, devices)


def expected_of(view: SeenNode) -> Expected:
    """The shipped expectations for the GPUs that a node shows."""
    return recognised(list(view.models().values()), len(view.gpus))


def examined(view: SeenNode, expected: Expected, names: Collection[str]) -> list[HealthFinding]:
    """The findings of the checks with these names, as far as anything is expected of what they look at."""
    findings = (check.judge(view, expected) for check in CHECKS if check.name in names)
    return [finding for finding in findings if finding is not None]
