"""Eighteen agents are restarted one after the other while their rack draws too much: RackPowerHigh alone fires.

The agents are real but for sockets and clocks: what one tells is handed to the others, and each second is played.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from agent.catalogue.node import NODE_POWER
from agent.model import Instant, Node, Phase, Rack, Reading, Series
from agent.rack.finder import HostEntry
from agent.rack.monitor import SETTLED_SECONDS, RackMonitor
from agent.rack.peer_messages import PeerFault
from agent.rack.peers import Member
from agent.rack.rack_options import RackOptions
from alerts.engine import RuleEngine, Ruleset
from alerts.rulefile import RuleFile, load
from tests.frames import snapshot_of

RULES = Path(__file__).resolve().parents[2] / "alerts" / "rules"
NODES = 18
BUDGET = 132_000.0
ENTRIES = tuple(HostEntry(f"10.0.0.{number}", 19400) for number in range(1, NODES + 1))
OPTIONS = RackOptions("r12", entries=ENTRIES, nameplate=9_000.0, budget=BUDGET)
OWN_POWER = Series(NODE_POWER, Node(), (("source", "ipmi"),))
OWN_BUDGET = Series(BY_NAME["coldplate_rack_power_budget_watts"], Rack("r12"))
START = Instant(1_000.0, 1.8e9 + 0.2)
DOWN = 5
"""Seconds for which an agent is away: when it is back the next one goes, so that some node is always missing."""
JUDGES = (0, 1, 9, 17)
"""The agents whose rules are evaluated."""


class Agent:
    """One run of one agent."""

    def __init__(self, number: int, run: int, clock: Clock, rules: tuple[RuleFile, ...]) -> None:
        name = f"n{number}:19400"
        self.clock = clock
        self.watch = RackMonitor(
            Member("r12", "", f"run-{run:02}-of-{number:02}", name, "coldplate"), OPTIONS, clock, lambda: 0.0
        )
        self.watch._finder.refresh()
        self.watch._settled_by = clock().mono + SETTLED_SECONDS
        labels = (("instance", name), ("job", "coldplate"))
        self.engine = RuleEngine(Ruleset(rules), labels, clock()) if number in JUDGES else None

    def sample(self, watts: float) -> None:
        self.watch.observe(snapshot_of(1, self.clock(), (Reading(OWN_POWER, watts),)))

    def judge(self, watts: float) -> set[str]:
        """The alerts that fire."""
        if self.engine is None:
            return set()
        now = self.clock()
        readings = (Reading(OWN_POWER, watts), Reading(OWN_BUDGET, BUDGET), *self.watch.frame(now).readings)
        self.engine.round(snapshot_of(1, now, readings), now, self.watch.foreign(now))
        alerts = [alert for _, group in self.engine.groups() for alert in group.firing()]
        return {alert.rule for alert in alerts if alert.phase is Phase.FIRING}


class Clock:
    def __init__(self) -> None:
        self.second = 0

    def __call__(self) -> Instant:
        return Instant(START.mono + self.second, START.wall + self.second)


class Rackful:
    """All agents of the rack, and those that are away."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rules = tuple(load(RULES / f"{name}.yml") for name in ("rack", "rack-state", "rack-faults"))
        self.agents: list[Agent | None] = [Agent(number, 0, self.clock, self.rules) for number in range(NODES)]
        self.runs = 0
        self.fired: dict[str, int] = {}
        self.watched: list[int] = []

    def stop(self, number: int) -> None:
        self.agents[number] = None

    def start(self, number: int) -> None:
        self.runs += 1
        self.agents[number] = Agent(number, self.runs, self.clock, self.rules)

    def play(self, seconds: int, watts: float) -> None:
        for _ in range(seconds):
            self.clock.second += 1
            now = self.clock()
            up = [agent for agent in self.agents if agent is not None]
            told = [None if agent is None else agent.watch.report() for agent in self.agents]
            for agent in up:
                for target, body in zip(agent.watch._finder.targets, told, strict=True):
                    if body is None:
                        agent.watch.failed(target, PeerFault.CONNECT, "refused")
                    else:
                        agent.watch.answered(target, body, now, now)
            for agent in up:
                agent.sample(watts)
                for alert in agent.judge(watts):
                    self.fired.setdefault(alert, self.clock.second)


@pytest.fixture(scope="module")
def rackful() -> Rackful:
    """After a minute at 76% of the budget, half a minute of overrun, and a restart of every agent during it."""
    made = Rackful()
    made.play(60, watts=5_600.0)
    assert made.fired == {}
    made.play(30, watts=8_000.0)
    for number in range(NODES):
        made.stop(number)
        made.play(DOWN, watts=8_000.0)
        made.start(number)
    made.play(20, watts=8_000.0)
    return made


def test_restarting_agents_one_after_the_other_during_an_overrun_fires_nothing_else(rackful: Rackful) -> None:
    assert set(rackful.fired) == {"RackPowerHigh"}
    assert all(
        "RackPowerHigh" in agent.judge(8_000.0) for agent in rackful.agents if agent is not None and agent.engine
    )


def test_an_agent_that_does_not_come_back_is_missed(rackful: Rackful) -> None:
    rackful.stop(5)
    rackful.play(29, watts=8_000.0)
    assert set(rackful.fired) == {"RackPowerHigh"}
    rackful.play(10, watts=8_000.0)
    assert set(rackful.fired) == {"RackPowerHigh", "RackPowerUnknown"}
