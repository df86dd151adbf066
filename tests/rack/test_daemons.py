"""Four agents of one rack, in processes of their own: they agree, take turns, and notice a silent one."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from agent.catalogue.node import NODE_POWER
from agent.model import Instant, Node, Phase, Rack, Reading, Series
from agent.rack.agreement import chosen
from agent.rack.finder import HostEntry
from agent.rack.monitor import SETTLED_SECONDS, RackMonitor
from agent.rack.peer_messages import PeerFault
from agent.rack.peers import Member
from agent.rack.rack_options import BEYOND_PLATE, RackOptions
from alerts.engine import RuleEngine, Ruleset
from alerts.rulefile import RuleFile, load
from tests.daemon.conftest import RunningDaemon, samples
from tests.frames import snapshot_of
from tests.power.conftest import Controller, controller
from tests.servers import free_ports
from tests.waiting import wait_until

__all__ = ["controller"]

UNIT = "/redfish/v1/ThermalEquipment/CDUs/1"
DOCUMENTS = {
    "/redfish/v1/": {"ThermalEquipment": {"@odata.id": "/redfish/v1/ThermalEquipment"}},
    "/redfish/v1/ThermalEquipment": {"CDUs": {"@odata.id": "/redfish/v1/ThermalEquipment/CDUs"}},
    "/redfish/v1/ThermalEquipment/CDUs": {"Members": [{"@odata.id": UNIT}]},
    UNIT: {"@odata.id": UNIT, "Status": {"State": "Enabled", "Health": "OK"}},
}
NAMEPLATE = 10_200.0
EQUIPMENT = ", equipment: {{cdu: {{url: '{url}'}}}}"
TAKEN_OVER_SECONDS = 15.0
RULES = """
groups:
- name: rack
  interval: 1s
  rules:
  - alert: RackOverrun
    expr: max by (rack) (coldplate_rack_power_watts) > 1.35 * max by (rack) (coldplate_rack_power_budget_watts)
"""
OVERRUN = """
description: From 6 s on, four nodes like this one draw more than 135% of their rack's 40.8 kW.
topology: dgx-h100
seed: 17
jobs: [{id: "6013", gpus: all, phases: [{kind: training}]}]
faults: [{kind: node-power, at: 6s, watts: 9kW, ramp: 0s}]
"""
CONFIG = """
node: {{name: node{number}}}
rack: {{name: r12, power_budget: 40.8kW, node_nameplate: 10.2kW, peers: [{peers}]{equipment}}}
backends: {{host: false}}
rules: {{files: [rules.yml]}}
"""


class RackAgent(RunningDaemon):
    def rack(self) -> dict[str, float]:
        """The rack's series, by name without the prefix and labels."""
        found = samples(self.get(), r"coldplate_rack_\w+")
        return {name.removeprefix("coldplate_rack_"): value for name, _, value in found}


@pytest.fixture
def agents(tmp_path: Path, controller: Controller) -> Iterator[dict[str, Any]]:
    """All four by their names, with the same list of peers, in which each finds itself.

    The agent that all would choose first to ask the distribution unit is not configured to ask it.
    """
    controller.documents = DOCUMENTS
    (tmp_path / "scenario.yaml").write_text(OVERRUN)
    (tmp_path / "rules.yml").write_text(RULES)
    ports = free_ports(4)
    peers = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    names = {f"node{number}:{port}": (number, port) for number, port in enumerate(ports)}
    without = chosen("cdu", names)
    started = {}
    for name, (number, port) in names.items():
        equipment = "" if name == without else EQUIPMENT.format(url=controller.url)
        config = tmp_path / f"{port}.yaml"
        config.write_text(CONFIG.format(number=number, peers=peers, equipment=equipment))
        words = ["--config.file", str(config), "--scenario", str(tmp_path / "scenario.yaml")]
        started[name] = RackAgent(words, tmp_path / f"{port}.log", forked=True, port=port)
    for each in started.values():
        each.await_url()
    yield started
    for each in started.values():
        each.stop()


def seconds_of(agent: Any) -> dict[int, float]:
    report = json.loads(agent.get("/api/v1/rack"))
    first = report["last"] - len(report["watts"]) + 1
    return {second: watts for second, watts in enumerate(report["watts"], first) if watts is not None}


def seen_by(agents: list[Any]) -> dict[int, set[tuple[float, float]]]:
    """For each second that some agent shows, the sums and the numbers of nodes that are told for it."""
    seen: dict[int, set[tuple[float, float]]] = {}
    for row in (each.rack() for each in agents):
        if "power_watts" in row:
            told = (row["power_watts"], row["nodes_reporting"])
            seen.setdefault(int(row["power_timestamp_seconds"]), set()).add(told)
    return seen


def test_agents_of_a_rack_agree_add_up_and_notice_a_silent_one(agents: dict[str, Any]) -> None:
    everyone = list(agents.values())
    wait_until(lambda: all(each.rack().get("nodes_reporting") == 4 for each in everyone), 60)
    drawn: dict[int, list[float]] = {}
    sums: dict[int, set[tuple[float, float]]] = {}
    for _ in range(8):
        for second, told in seen_by(everyone).items():
            sums.setdefault(second, set()).update(told)
        told_by_each = [seconds_of(each) for each in everyone]
        for second in set.intersection(*map(set, told_by_each)):
            drawn[second] = [min(watts[second], NAMEPLATE * BEYOND_PLATE) for watts in told_by_each]
        time.sleep(0.3)
    compared = {second: told for second, told in sums.items() if second in drawn}
    assert len(compared) >= 2
    for second, told in compared.items():
        assert told == {(sum(drawn[second]), 4.0)}, f"second {second}"
    row = everyone[0].rack()
    assert row["nodes_expected"] == 4
    assert row["power_conservative_watts"] == row["power_watts"]

    wait_until(lambda: all("RackOverrun" in each.get("/api/v1/alerts") for each in everyone), 15)
    fired = {
        str(alert["labels"]) for each in everyone for alert in json.loads(each.get("/api/v1/alerts"))["data"]["alerts"]
    }
    assert fired == {str({"alertname": "RackOverrun", "rack": "r12"})}

    able = [name for name in agents if name != chosen("cdu", agents)]

    def asking() -> list[str]:
        return [name for name in able if agents[name].rack().get("equipment_up") == 1]

    asked = chosen("cdu", able)
    wait_until(lambda: asking() == [asked], 40)
    able.remove(asked)
    agents[asked].stop(signal.SIGKILL)
    left = [agent for name, agent in agents.items() if name != asked]
    wait_until(lambda: all(each.rack()["nodes_reporting"] == 3 for each in left), 6)
    wait_until(lambda: len(seen_by(left)) == 1, 3)
    for told in seen_by(left).values():
        assert len(told) == 1
    row = left[0].rack()
    assert (row["nodes_expected"], row["peer_failures_total"] > 0) == (4, True)
    assert row["power_conservative_watts"] == row["power_watts"] + NAMEPLATE
    wait_until(lambda: asking() == [chosen("cdu", able)], TAKEN_OVER_SECONDS)
    assert not [each for each in left if "Traceback" in each.log.read_text()]


# Six agents are restarted one after the other while their rack draws too much: RackPowerHigh alone fires.
SHIPPED = Path(__file__).resolve().parents[2] / "alerts" / "rules"
NODES = 6
BUDGET = 44_000.0
ENTRIES = tuple(HostEntry(f"10.0.0.{number}", 19400) for number in range(1, NODES + 1))
OPTIONS = RackOptions("r12", entries=ENTRIES, nameplate=9_000.0, budget=BUDGET)
OWN_POWER = Series(NODE_POWER, Node(), (("source", "ipmi"),))
OWN_BUDGET = Series(BY_NAME["coldplate_rack_power_budget_watts"], Rack("r12"))
START = Instant(1_000.0, 1.8e9 + 0.2)
DOWN = 5
"""Seconds for which an agent is away: when it is back the next one goes, so that some node is always missing."""
JUDGES = (0, 1, 5)
"""The agents whose rules are evaluated."""


class Agent:
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
    def __init__(self) -> None:
        self.clock = Clock()
        self.rules = tuple(load(SHIPPED / f"{name}.yml") for name in ("rack", "rack-state", "rack-faults"))
        self.agents: list[Agent | None] = [Agent(number, 0, self.clock, self.rules) for number in range(NODES)]
        self.runs = 0
        self.fired: dict[str, int] = {}

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


def test_agents_that_restart_during_an_overrun_fire_nothing_else() -> None:
    """After a minute at 76% of the budget, half a minute of overrun, and a restart of every agent during it."""
    rackful = Rackful()
    rackful.play(60, watts=5_600.0)
    assert rackful.fired == {}
    rackful.play(30, watts=8_000.0)
    for number in range(NODES):
        rackful.stop(number)
        rackful.play(DOWN, watts=8_000.0)
        rackful.start(number)
    rackful.play(20, watts=8_000.0)
    assert set(rackful.fired) == {"RackPowerHigh"}
    assert all(
        "RackPowerHigh" in agent.judge(8_000.0) for agent in rackful.agents if agent is not None and agent.engine
    )
    rackful.stop(5)
    rackful.play(29, watts=8_000.0)
    assert set(rackful.fired) == {"RackPowerHigh"}
    rackful.play(10, watts=8_000.0)
    assert set(rackful.fired) == {"RackPowerHigh", "RackPowerUnknown"}
