"""Agents of one rack, in processes of their own, and a distribution unit that one of them asks at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.rack.turns import chosen
from tests.power.conftest import Controller, controller

__all__ = ["controller"]

TAKEN_OVER_SECONDS = 15.0
UNIT = "/redfish/v1/ThermalEquipment/CDUs/1"
CONFIG = """
node: {{name: node{number}}}
rack: {{name: r12, nodes_expected: 4, peers: [{peers}]{equipment}}}
backends: {{devices: none, host: false, infiniband: false, power: []}}
"""
EQUIPMENT = ", equipment: {{cdu: {{url: '{url}'}}}}"


@pytest.fixture
def agents(rack: Any, tmp_path: Path, controller: Controller) -> Iterator[dict[str, Any]]:
    """Four by their name; the one that all would choose first is not configured to ask."""
    controller.documents = {
        "/redfish/v1/": {"ThermalEquipment": {"@odata.id": "/redfish/v1/ThermalEquipment"}},
        "/redfish/v1/ThermalEquipment": {"CDUs": {"@odata.id": "/redfish/v1/ThermalEquipment/CDUs"}},
        "/redfish/v1/ThermalEquipment/CDUs": {"Members": [{"@odata.id": UNIT}]},
        UNIT: {"@odata.id": UNIT, "Status": {"State": "Enabled", "Health": "OK"}},
    }
    ports = rack.free_ports(4)
    peers = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    names = {f"node{number}:{port}": (number, port) for number, port in enumerate(ports)}
    other = chosen("cdu", names)
    started = {
        name: rack.Daemon(
            port, tmp_path,
            CONFIG.format(
                number=number, peers=peers, equipment="" if name == other else EQUIPMENT.format(url=controller.url)
            ),
        )
        for name, (number, port) in names.items()
    }  # fmt: skip
    yield {name: agent for name, agent in started.items() if name != other}
    for each in started.values():
        each.stop()


def test_one_agent_asks_and_another_takes_over_when_it_dies(rack: Any, agents: dict[str, Any]) -> None:
    def asking() -> list[str]:
        return [name for name, agent in agents.items() if agent.rack().get("equipment_up") == 1]

    for _ in range(2):
        best = chosen("cdu", agents)
        rack.until(f"{best} alone asks", lambda best=best: asking() == [best], 40.0)
        agents.pop(best).stop(signal.SIGKILL)
        rack.until("another asks", lambda: asking() != [], TAKEN_OVER_SECONDS)
    assert asking() == list(agents)


SYNTHETIC = """
node: {{name: node{number}}}
rack: {{name: r14, nodes_expected: 2, peers: [{peers}]}}
backends: {{host: false}}
"""
TRAY = """
description: A tray whose rack has lost a pump.
topology: nvl72-rack
faults: [{kind: pump-failure, pump: PumpA}]
"""


@pytest.fixture
def trays(rack: Any, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Two synthetic ones by their name, which both could tell of their rack."""
    (tmp_path / "tray.yaml").write_text(TRAY)
    ports = rack.free_ports(2)
    peers = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    started = {
        f"node{number}:{port}": rack.Daemon(
            port, tmp_path, SYNTHETIC.format(number=number, peers=peers), "--scenario", str(tmp_path / "tray.yaml")
        )
        for number, port in enumerate(ports)
    }
    yield started
    for each in started.values():
        each.stop()


@pytest.mark.parametrize("service", ["cdu", "power-shelves"])
def test_one_of_two_synthetic_trays_tells_of_what_serves_their_rack(
    rack: Any, trays: dict[str, Any], service: str
) -> None:
    def telling() -> list[str]:
        up = f'coldplate_rack_equipment_up{{rack="r14",equipment="{service}"}} 1'
        return [name for name, agent in trays.items() if agent.rack() and up in agent.get("/metrics")]

    best = chosen(service, trays)
    rack.until(f"{best} alone tells", lambda: telling() == [best], 40.0)
    if service == "cdu":
        lost = 'part="PumpA",state="critical"} 1'
        assert lost in trays[best].get("/metrics")
    trays[best].stop(signal.SIGKILL)
    rack.until("the other one tells", lambda: telling() == [name for name in trays if name != best], 15.0)
