"""Collect the evidence of `coldplate check --url` from the agent of another node: its last sample and its alerts."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from agent.commands.check.node_check import CheckEvidence, firing_of_node
from agent.config.words import DEVICES
from agent.lib.clock import clock
from agent.lib.http_target import HttpTarget
from agent.lib.wording import UserError
from agent.wiring.agent_client import AgentClient

PAUSED = "coldplate_devices_paused_until_timestamp_seconds"
MAX_AGE_SECONDS = 60.0
"""Age of a sample above which it shows how the node was: an agent reads its slowest facts about once a minute."""


def query_node(target: HttpTarget, until: float) -> CheckEvidence:
    """Return what the agent at `target` reports, by a monotonic second. Raises UserError if that is not current."""
    timeout = max(until - clock().mono, 0.1)
    client = AgentClient(target.shown, replace(target, timeout=timeout), clock, with_past=False)
    found = client.fetch()
    client.close()
    if found.snapshot is None:
        raise UserError(f"{target.shown}: {found.problem}; see systemctl status coldplate on that node")
    if found.age > MAX_AGE_SECONDS:
        problem = f"the agent's last sample is {found.age:.0f} s old"
        raise UserError(f"{target.shown}: {problem}; see its /-/ready, or restart coldplate on that node")
    alerts = None if found.alerts is None else firing_of_node(found.alerts)  # None: it evaluates no rules
    paused = "the agent has released the driver (coldplate pause)"
    return CheckEvidence(
        found.snapshot,
        next((each.backend for each in found.snapshot.reports if each.backend in DEVICES), ""),
        waited=inf,
        alerts=alerts,
        paused=paused if any(series.metric.name == PAUSED for series, _ in found.snapshot) else "",
    )
