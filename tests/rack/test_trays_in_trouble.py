"""Four synthetic trays of an NVL72, a distribution unit and a real Alertmanager: what goes wrong is told once each."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.rack.turns import chosen
from tests.power.conftest import Controller, controller
from tests.servers import Alertmanager

__all__ = ["controller"]

pytestmark = pytest.mark.release  # two minutes; the rules, the ledger and the turns are tested without processes

TRAYS = 4
SPLIT = 1
"""The tray of which a GPU leaves the clique."""
SCENARIO = """
description: Training on a tray.
topology: nvl72-tray
seed: {seed}
jobs:
  - {{id: "6030", name: llama-pretrain, user: ada, gpus: all, memory: 0.85, phases: [{{kind: training}}]}}
faults: [{faults}]
"""
LEAVES = "{kind: clique, gpu: 2, at: 20s, clique: 1}"
CONFIG = """
node: {{name: tray{number}}}
rack: {{name: r14, power_budget: 32kW, nodes_expected: 4, peers: [{peers}], equipment: {{cdu: {{url: '{cdu}'}}}}}}
sampling: {{slow: 5s, cold: 10s}}
rules:
  override:
    RackCoolantSupplyHot: {{expr: 'label_replace(rack:coolant_supply_celsius:max > 40, "level", "warning", "", "")'}}
expectations: none
backends: {{host: false}}
notify: {{alertmanager: {{urls: ['{alertmanager}']}}, resend: 5s}}
"""
ROOT = "/redfish/v1"
UNIT = f"{ROOT}/ThermalEquipment/CDUs/1"
CONNECTORS = f"{UNIT}/SecondaryCoolantConnectors"
WELL = {"State": "Enabled", "Health": "OK"}


def supply(celsius: float) -> dict[str, Any]:
    """The connector of the loop to the rack."""
    return {
        "@odata.id": f"{CONNECTORS}/1", "Status": WELL, "SupplyTemperatureCelsius": {"Reading": celsius},
        "ReturnTemperatureCelsius": {"Reading": celsius + 9.0}, "FlowLitersPerMinute": {"Reading": 40.0},
    }  # fmt: skip


def cdu(controller: Controller) -> None:
    """One unit, whose loop to the rack is well."""
    controller.documents = {
        f"{ROOT}/": {"ThermalEquipment": {"@odata.id": f"{ROOT}/ThermalEquipment"}},
        f"{ROOT}/ThermalEquipment": {"CDUs": {"@odata.id": f"{ROOT}/ThermalEquipment/CDUs"}},
        f"{ROOT}/ThermalEquipment/CDUs": {"Members": [{"@odata.id": UNIT}]},
        UNIT: {"@odata.id": UNIT, "Status": WELL, "SecondaryCoolantConnectors": {"@odata.id": CONNECTORS}},
        CONNECTORS: {"Members": [{"@odata.id": f"{CONNECTORS}/1"}]},
        f"{CONNECTORS}/1": supply(30.0),
    }


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    server = Alertmanager(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def trays(rack: Any, tmp_path: Path, controller: Controller, alertmanager: Alertmanager) -> Iterator[dict[str, Any]]:
    """The agents by the name that each gives itself, in the order of the trays."""
    cdu(controller)
    ports = rack.free_ports(TRAYS)
    peers = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    started = {}
    for number, port in enumerate(ports):
        scenario = tmp_path / f"tray{number}.yaml"
        scenario.write_text(SCENARIO.format(seed=number, faults=LEAVES if number == SPLIT else ""))
        config = CONFIG.format(number=number, peers=peers, cdu=controller.url, alertmanager=alertmanager.url)
        started[f"tray{number}:{port}"] = rack.Daemon(
            port, tmp_path, config, "--backend", "synthetic", "--scenario", str(scenario)
        )
    yield started
    for each in started.values():
        each.stop()


def is_told(alertmanager: Alertmanager, *alerts: str) -> Callable[[], bool]:
    """Whether these are at the Alertmanager, each once, and nothing else."""
    wanted = Counter(alerts)
    return lambda: Counter(each["labels"]["alertname"] for each in alertmanager.query()) == wanted


def test_a_split_clique_a_dead_agent_and_warm_water_are_one_alert_of_the_rack_each(
    rack: Any, trays: dict[str, Any], controller: Controller, alertmanager: Alertmanager
) -> None:
    rack.until("all trays tell their power", lambda: all(e.rack().get("nodes_reporting") == TRAYS
                                                        for e in trays.values()), 90.0)  # fmt: skip
    rack.until("the split domain is told", is_told(alertmanager, "RackNvlink"), 120.0)
    asking = chosen("cdu", trays)
    victim = next(name for number, name in enumerate(trays) if number != SPLIT and name != asking)
    trays[victim].stop(signal.SIGKILL)
    known = ["RackNvlink", "RackPowerUnknown"]
    rack.until("the silent tray is told", is_told(alertmanager, *known), 120.0)
    controller.documents[f"{CONNECTORS}/1"] = supply(42.5)
    known.append("RackCoolantSupplyHot")
    rack.until("the warm water is told", is_told(alertmanager, *known), 120.0)
    told = {each["labels"]["alertname"]: each for each in alertmanager.query()}
    assert all(each["labels"]["rack"] == "r14" and "instance" not in each["labels"] for each in told.values())
    assert list(trays)[SPLIT] in told["RackNvlink"]["annotations"]["description"]
    assert victim.partition(":")[2] in told["RackPowerUnknown"]["annotations"]["description"]
    assert told["RackCoolantSupplyHot"]["labels"]["equipment"] == "cdu"
