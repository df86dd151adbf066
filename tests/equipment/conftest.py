"""A management controller whose documents a test writes, and the backend that reads it without threads."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.backends.equipment.equipment_backend import EquipmentBackend, NodeCoolingReader
from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend, over_http
from agent.backends.protocol import BackendSample
from agent.lib.http_target import HttpTarget
from agent.model import Instant, Lane, Node
from tests.power.conftest import Controller, controller

__all__ = ["Cooled", "controller"]

BASE = "/redfish/v1/Chassis"


class Cooled:
    """A node's controller with leak detectors and coolant connectors, and what the backend makes of it."""

    def __init__(self, controller: Controller, chassis: str | None = None) -> None:
        self.controller = controller
        self.now = 1000.0
        # Its answers always come: no time passes while they are waited for, however slow this machine is.
        watch = NodeCoolingReader(HttpTarget(controller.url, timeout=60.0), chassis, lambda: self.now)
        self.backend = EquipmentBackend(watch, Node(), spawn=lambda job: job())

    def serve(self, chassis: str, **parts: Any) -> None:
        """A chassis with a ThermalSubsystem that has these members."""
        documents = self.controller.documents
        members = documents.setdefault(BASE, {"Members": []})["Members"]
        members.append({"@odata.id": f"{BASE}/{chassis}"})
        thermal = f"{BASE}/{chassis}/ThermalSubsystem"
        documents[f"{BASE}/{chassis}"] = {"Id": chassis, "ThermalSubsystem": {"@odata.id": thermal}}
        documents[thermal] = parts

    def leaks(self, chassis: str, **states: Any) -> dict[str, str]:
        """A LeakDetection resource with detectors of its own; the link to it."""
        path = f"{BASE}/{chassis}/ThermalSubsystem/LeakDetection"
        detectors = {name: state if isinstance(state, dict) else detector(state) for name, state in states.items()}
        listed = self.controller.collection(f"{path}/LeakDetectors", detectors)
        self.controller.documents[path] = {"LeakDetectors": listed}
        return {"@odata.id": path}

    def connectors(self, chassis: str, **documents: Any) -> dict[str, str]:
        """A collection of coolant connectors; the link to it."""
        return self.controller.collection(f"{BASE}/{chassis}/ThermalSubsystem/CoolantConnectors", documents)

    def read(self, seconds: float = 20.0) -> BackendSample:
        """A read so many seconds after the one before: the backend shows what it asked for at the read before."""
        self.now += seconds
        return self.backend.read(Lane.SLOW, Instant(self.now, 1e9 + self.now))

    def leak_states(self, seconds: float = 20.0) -> dict[str, str]:
        """What each detector says now, by its chassis and name."""
        said = {}
        for reading in self.read(seconds).readings:
            labels = dict(reading.labels)
            if reading.metric.name == "coldplate_leak_detector_state" and reading.value == 1:
                said[f"{labels['chassis']}/{labels['detector']}"] = labels["state"]
        return said

    def coolant(self, seconds: float = 20.0) -> dict[str, float]:
        """The values of the coolant, by metric and connector."""
        start = "coldplate_coolant_"
        found = [each for each in self.read(seconds).readings if each.metric.name.startswith(start)]
        return {
            f"{each.metric.name.removeprefix(start)} {dict(each.labels)['connector']}": each.value for each in found
        }


def detector(state: str | None, enabled: str = "Enabled") -> dict[str, Any]:
    return {"Id": "x", "DetectorState": state, "Status": {"State": enabled, "Health": "OK"}}


@pytest.fixture
def cooled(controller: Controller) -> Iterator[Callable[..., Cooled]]:
    made: list[Cooled] = []

    def build(chassis: str | None = None) -> Cooled:
        made.append(Cooled(controller, chassis))
        return made[-1]

    yield build
    for each in made:
        each.backend.close()


# A Redfish service of a rack's equipment whose documents a test writes, and the backend that reads it.
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
        if isinstance(document, dict) and "members" in document:
            self.controller.collection(f"{UNITS}/{path}", document["members"])
        else:
            self.controller.documents[f"{UNITS}/{path}"] = document

    def read(self, seconds: float = 20.0) -> BackendSample:
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
