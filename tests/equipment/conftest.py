"""A management controller whose documents a test writes, and the backend that reads it without threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.backends.equipment.equipment_backend import EquipmentBackend
from agent.backends.equipment.node_cooling_reader import NodeCoolingReader
from agent.backends.protocol import BackendSample
from agent.lib.http_target import HttpTarget
from agent.model import Instant, Lane
from tests.power.conftest import Controller, controller

__all__ = ["Cooled", "controller"]

BASE = "/redfish/v1/Chassis"


class Cooled:
    """A node's controller with leak detectors and coolant connectors, and what the backend makes of it."""

    def __init__(self, controller: Controller, chassis: str | None = None) -> None:
        self.controller = controller
        self.now = 1000.0
        self._started = time.monotonic()
        watch = NodeCoolingReader(HttpTarget(controller.url, timeout=1.0), chassis, self._clock)
        self.backend = EquipmentBackend(watch, spawn=lambda job: job())

    def _clock(self) -> float:
        """The test's time, in which what is waited for takes as long as it takes."""
        return self.now + time.monotonic() - self._started

    def serve(self, chassis: str, **parts: Any) -> None:
        """A chassis with a ThermalSubsystem that has these members."""
        documents = self.controller.documents
        members = documents.setdefault(BASE, {"Members": []})["Members"]
        members.append({"@odata.id": f"{BASE}/{chassis}"})
        thermal = f"{BASE}/{chassis}/ThermalSubsystem"
        documents[f"{BASE}/{chassis}"] = {"Id": chassis, "ThermalSubsystem": {"@odata.id": thermal}}
        documents[thermal] = parts

    def collection(self, path: str, members: dict[str, Any]) -> dict[str, str]:
        """A collection with these documents; the link to it."""
        documents = self.controller.documents
        documents[path] = {"Members": [{"@odata.id": f"{path}/{name}"} for name in members]}
        documents.update({f"{path}/{name}": document for name, document in members.items()})
        return {"@odata.id": path}

    def leaks(self, chassis: str, **states: Any) -> dict[str, str]:
        """A LeakDetection resource with detectors of its own; the link to it."""
        path = f"{BASE}/{chassis}/ThermalSubsystem/LeakDetection"
        detectors = {name: state if isinstance(state, dict) else detector(state) for name, state in states.items()}
        self.controller.documents[path] = {"LeakDetectors": self.collection(f"{path}/LeakDetectors", detectors)}
        return {"@odata.id": path}

    def connectors(self, chassis: str, **documents: Any) -> dict[str, str]:
        """A collection of coolant connectors; the link to it."""
        return self.collection(f"{BASE}/{chassis}/ThermalSubsystem/CoolantConnectors", documents)

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
    """A LeakDetector resource."""
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
