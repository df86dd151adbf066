"""A scenario seen by somebody who comes late: when all of its faults have shown, and the XIDs that came before."""

from __future__ import annotations

from agent.backends.synthetic.scenario import Scenario
from agent.backends.synthetic.synthetic_source import identity_of
from agent.backends.synthetic.xid_feed import XidFeed
from agent.model import Instant, Xid

SETTLING_SECONDS = 20.0
"""Seconds from the last fault's beginning until it shows in full: heat takes a while."""


def settled_at(scenario: Scenario) -> float:
    """Seconds from the scenario's beginning until the last of its faults has shown."""
    return max((fault.window.at for fault in scenario.faults), default=0.0) + SETTLING_SECONDS


def past_xids(scenario: Scenario, t: float, now: Instant) -> list[Xid]:
    """The XIDs of the first `t` seconds, as the kernel log of such a node would have them at `now`."""
    uuids = tuple(identity_of(scenario, number).gpu.uuid for number in range(scenario.topology.gpus))
    feed = XidFeed(scenario, uuids, 0.0)
    feed.advance(t, now)
    return feed.wait(0.0)
