"""Two synthetic trays of one rack: one of them reports the equipment that serves both."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.rack.turns import chosen

pytestmark = pytest.mark.release  # most of a minute; test_daemons has four agents take turns

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


def test_one_of_two_synthetic_trays_reports_the_equipment_of_their_rack(rack: Any, trays: dict[str, Any]) -> None:
    def reporting(service: str) -> list[str]:
        up = f'coldplate_rack_equipment_up{{rack="r14",equipment="{service}"}} 1'
        return [name for name, agent in trays.items() if agent.rack() and up in agent.get("/metrics")]

    for service in ("cdu", "power-shelves"):
        best = chosen(service, trays)
        rack.until(f"{best} alone reports", lambda best=best, service=service: reporting(service) == [best], 40.0)
    best = chosen("cdu", trays)
    assert 'part="PumpA",state="critical"} 1' in trays[best].get("/metrics")
    trays[best].stop(signal.SIGKILL)
    (other,) = (name for name in trays if name != best)
    for service in ("cdu", "power-shelves"):
        rack.until("the other one reports", lambda service=service: reporting(service) == [other], 15.0)
