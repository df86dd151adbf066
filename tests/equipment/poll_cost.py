"""`python -m tests.equipment.poll_cost`: what reading a rack's equipment costs the agent that does it.

A distribution unit of our own making, with two pumps, two filters, a reservoir, four leak detectors, two connectors and
the air, is served by a real HTTP server on loopback, in a process of its own. The backend reads it as the daemon has it
do: a look at whose turn it is each second, and a round of questions each 15 s. Printed is this process's processor time
for one round and for the fourteen reads between two, as a share of 15 s of one core.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend, over_http
from agent.lib.http_target import HttpTarget
from agent.model import Framer, Instant, Lane
from tests.power.conftest import Controller, Handler, Service

ROUNDS = 40
PERIOD = 15
UNIT = "/redfish/v1/ThermalEquipment/CDUs/1"
OK = {"Status": {"State": "Enabled", "Health": "OK"}}
SENSORS = {
    name: {"Reading": 31.5, "DataSourceUri": f"/redfish/v1/Chassis/CDU/Sensors/{name}"}
    for name in (
        "SupplyTemperatureCelsius", "ReturnTemperatureCelsius", "FlowLitersPerMinute", "HeatRemovedkW",
        "SupplyPressurekPa", "ReturnPressurekPa", "DeltaPressurekPa",
    )
}  # fmt: skip
PARTS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "Pumps": (2, {"PumpSpeedPercent": {"Reading": 60}}),
    "Filters": (2, {"ServiceHours": 1, "RatedServiceHours": 2, "DeltaLiquidPressurekPa": {"Reading": 12}}),
    "Reservoirs": (1, {"FluidLevelStatus": "OK", "FluidLevelPercent": {"Reading": 80}}),
    "PrimaryCoolantConnectors": (1, SENSORS),
    "SecondaryCoolantConnectors": (1, SENSORS),
}


def documents() -> dict[str, Any]:
    """The unit's."""
    made: dict[str, Any] = {
        "/redfish/v1/": {"ThermalEquipment": {"@odata.id": "/redfish/v1/ThermalEquipment"}},
        "/redfish/v1/ThermalEquipment": {"CDUs": {"@odata.id": "/redfish/v1/ThermalEquipment/CDUs"}},
        "/redfish/v1/ThermalEquipment/CDUs": {"Members": [{"@odata.id": UNIT}]},
        UNIT: {name: {"@odata.id": f"{UNIT}/{name}"} for name in (*PARTS, "LeakDetection", "EnvironmentMetrics")} | OK,
        f"{UNIT}/LeakDetection": {"LeakDetectors": {"@odata.id": f"{UNIT}/LeakDetectors"}},
        f"{UNIT}/EnvironmentMetrics": {"TemperatureCelsius": {"Reading": 25}, "HumidityPercent": {"Reading": 50}},
    }
    for name, (number, document) in (*PARTS.items(), ("LeakDetectors", (4, {"DetectorState": "OK"}))):
        paths = [f"{UNIT}/{name}/{each}" for each in range(number)]
        made[f"{UNIT}/{name}"] = {"Members": [{"@odata.id": path} for path in paths]}
        made.update({path: {"@odata.id": path, **OK, **document} for path in paths})
    return made


def serve(pipe: Connection) -> None:
    """Serve until the other end of the pipe says otherwise."""
    service = Service(("127.0.0.1", 0), Handler)
    service.controller = Controller()
    service.controller.documents = documents()
    threading.Thread(target=service.serve_forever, daemon=True).start()
    pipe.send(f"http://127.0.0.1:{service.server_address[1]}")
    pipe.recv()


def main() -> int:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=serve, args=(there,))
    server.start()
    url = here.recv()
    now = 0.0
    services = over_http({"cdu": HttpTarget(url)}, time.monotonic)
    backend = RackEquipmentBackend("r1", services, lambda _: True, time.monotonic, lambda job: job())
    framer = Framer()
    backend.read(Lane.FAST, Instant(now, now))
    began = time.process_time()
    for _ in range(ROUNDS):
        for _ in range(PERIOD):
            now += 1.0
            sample = backend.read(Lane.FAST, Instant(now, now))
            framer.frame(sample.readings)
    spent = (time.process_time() - began) / ROUNDS
    backend.close()
    here.send(None)
    server.join()
    share = spent / PERIOD
    print(f"{len(sample.readings)} series; {spent * 1e3:.2f} ms of processor in {PERIOD} s: {share:.3%} of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
