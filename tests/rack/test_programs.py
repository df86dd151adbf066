"""A rack of four agents, a real Alertmanager and a real Prometheus: one alert, whoever sends it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.rack.conftest import Daemon, overrun
from tests.servers import Alertmanager, fetch, free_ports, prometheus
from tests.waiting import wait_until

pytestmark = pytest.mark.release  # most of a minute: four agents and two servers

RULES = Path(__file__).resolve().parents[2] / "alerts" / "rules"
CONFIG = """
node: {{name: node{number}}}
rack: {{name: r12, power_budget: 40.8kW, node_nameplate: 10.2kW, peers: [{peers}]}}
backends: {{host: false}}
notify: {{alertmanager: {{urls: ["{alertmanager}"]}}, resend: 1s}}
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}/rack*.yml"]
scrape_configs: [{{job_name: coldplate, static_configs: [{{targets: [{targets}]}}]}}]
"""


def test_a_rack_is_one_alert_for_agents_and_server_alike(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(overrun("8s"))
    alertmanager = Alertmanager(tmp_path)
    alertmanager.start()
    ports = free_ports(4)
    peers = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    agents: list[Any] = []

    def at_alertmanager(name: str) -> list[dict[str, str]]:
        return [each["labels"] for each in alertmanager.query() if each["labels"]["alertname"] == name]

    def at_prometheus(url: str) -> list[dict[str, str]]:
        found = json.loads(fetch(f"{url}/api/v1/alerts"))["data"]["alerts"]
        return [
            each["labels"]
            for each in found
            if each["labels"]["alertname"] == "RackPowerHigh" and each["state"] == "firing"
        ]

    try:
        for number, port in enumerate(ports):
            config = CONFIG.format(number=number, peers=peers, alertmanager=alertmanager.url)
            agents.append(Daemon(port, tmp_path, config, "--scenario", str(tmp_path / "scenario.yaml")))
        with prometheus(PROMETHEUS.format(rules=RULES, targets=peers), tmp_path) as server:
            trip = {"alertname": "RackPowerHigh", "level": "trip", "rack": "r12", "severity": "critical"}
            wait_until(lambda: at_alertmanager("RackPowerHigh") == [trip], 90)
            wait_until(lambda: at_prometheus(server) == [trip], 60)
            agents[3].stop(signal.SIGKILL)
            wait_until(lambda: len(at_alertmanager("RackPowerUnknown")) == 1, 60)
            # Without the fourth node's power the others may see a lower level beside it.
            assert trip in at_alertmanager("RackPowerHigh")
    finally:
        for each in agents:
            each.stop()
        alertmanager.stop()
