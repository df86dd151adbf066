"""Four agents of one rack, in processes of their own: they agree, take turns, and notice a silent one."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.rack.rack_options import BEYOND_PLATE
from agent.rack.turns import chosen
from tests.power.conftest import Controller, controller
from tests.rack.conftest import Daemon
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
ONSET = 6
"""Seconds after the start at which the nodes begin to draw far more than the rack may."""
SCENARIO = f"""
description: Node power that takes a rack of four such nodes over 135% of its 40.8 kW at once.
topology: dgx-h100
seed: 17
jobs:
  - {{id: "6013", name: llama-pretrain, user: ada, gpus: all, parallelism: data, memory: 0.85,
     phases: [{{kind: training}}]}}
faults:
  - {{kind: node-power, at: {ONSET}s, watts: 9kW, ramp: 0s}}
"""
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
CONFIG = """
node: {{name: node{number}}}
rack: {{name: r12, power_budget: 40.8kW, node_nameplate: 10.2kW, peers: [{peers}]{equipment}}}
backends: {{host: false}}
rules: {{files: [rules.yml]}}
"""


@pytest.fixture
def agents(tmp_path: Path, controller: Controller) -> Iterator[dict[str, Any]]:
    """All four by their names, with the same list of peers, in which each finds itself.

    The agent that all would choose first to ask the distribution unit is not configured to ask it.
    """
    controller.documents = DOCUMENTS
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "rules.yml").write_text(RULES)
    ports = free_ports(4)
    peers = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    names = {f"node{number}:{port}": (number, port) for number, port in enumerate(ports)}
    without = chosen("cdu", names)
    started = {}
    for name, (number, port) in names.items():
        equipment = "" if name == without else EQUIPMENT.format(url=controller.url)
        config = CONFIG.format(number=number, peers=peers, equipment=equipment)
        started[name] = Daemon(port, tmp_path, config, "--scenario", str(tmp_path / "scenario.yaml"))
    yield started
    for each in started.values():
        each.stop()


def seconds_of(agent: Any) -> dict[int, float]:
    """What a node says that it drew in each second."""
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
