"""A Redfish service of a rack's equipment whose documents a test writes, and the backend that reads it."""

from __future__ import annotations

from typing import Any

from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend, over_http
from agent.backends.protocol import BackendSample
from agent.lib.http_target import HttpTarget
from agent.model import Instant, Lane
from tests.power.conftest import Controller

ROOT = "/redfish/v1/"
UNITS = "/redfish/v1/ThermalEquipment/CDUs"
OK = {"Status": {"State": "Enabled", "Health": "OK"}}


class Plant:
    """A service with coolant distribution units, and what a backend with a turn makes of it, without threads."""

    def __init__(self, controller: Controller, **targets: str) -> None:
        self.controller = controller
        self.now = 1000.0
        self.mine = True
        documents = controller.documents
        documents[ROOT] = {"@odata.id": ROOT, "ThermalEquipment": {"@odata.id": "/redfish/v1/ThermalEquipment"}}
        documents["/redfish/v1/ThermalEquipment"] = {"CDUs": {"@odata.id": UNITS}}
        documents[UNITS] = {"Members": []}
        addresses = {name: HttpTarget(url, timeout=1.0) for name, url in {"cdu": controller.url, **targets}.items()}
        services = over_http(addresses, lambda: self.now)
        self.backend = RackEquipmentBackend(
            "r1", services, lambda _: self.mine, lambda: self.now, spawn=lambda job: job()
        )

    def unit(self, name: str, status: dict[str, Any] = OK, **parts: Any) -> None:
        """A unit; each of `parts` is a document, or a collection of the documents in a dict `members`."""
        path = f"{UNITS}/{name}"
        self.controller.documents[UNITS]["Members"].append({"@odata.id": path})
        links = {member: {"@odata.id": f"{path}/{member}"} for member in parts}
        self.controller.documents[path] = {"@odata.id": path, **status, **links}
        for member, document in parts.items():
            self.put(f"{name}/{member}", document)

    def put(self, path: str, document: Any) -> None:
        """A document below the units; a dict of `members` is a collection of them."""
        members = document.get("members") if isinstance(document, dict) else None
        if members is not None:
            self.controller.documents[f"{UNITS}/{path}"] = {
                "Members": [{"@odata.id": f"{UNITS}/{path}/{each}"} for each in members]
            }
            for each, inner in members.items():
                self.controller.documents[f"{UNITS}/{path}/{each}"] = inner
        else:
            self.controller.documents[f"{UNITS}/{path}"] = document

    def read(self, seconds: float = 20.0) -> BackendSample:
        """A read so many seconds after the one before."""
        self.now += seconds
        return self.backend.read(Lane.FAST, Instant(self.now, 1e9 + self.now))

    def states(self, seconds: float = 20.0) -> dict[str, str]:
        """What each part is, by unit, kind and name."""
        found = {}
        for reading in self.read(seconds).readings:
            labels = dict(reading.labels)
            if reading.metric.name == "coldplate_rack_part_state" and reading.value == 1:
                found[f"{labels['unit']} {labels['kind']} {labels['part']}"] = labels["state"]
        return found

    def values(self, seconds: float = 20.0) -> dict[str, float]:
        """All other values, by metric and the labels after those of the equipment."""
        found = {}
        for reading in self.read(seconds).readings:
            if reading.metric.name != "coldplate_rack_part_state":
                labels = [value for name, value in reading.labels if name != "equipment"]
                found[" ".join([reading.metric.name.removeprefix("coldplate_rack_"), *labels])] = reading.value
        return found
