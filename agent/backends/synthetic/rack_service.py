"""The Redfish services of what serves a synthetic rack: documents in the place of a network.

Whoever reads them is the reader of real services, with its search, its states and its errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import ROOT
from agent.backends.synthetic.fabric_channel import PowerDraw
from agent.backends.synthetic.machines import RackPlant
from agent.backends.synthetic.rack_cooling import RackCooling
from agent.backends.synthetic.rack_power import RackPower
from agent.backends.synthetic.redfish_tree import RedfishTree
from agent.backends.synthetic.scenario import Scenario
from agent.backends.synthetic.track import Track
from agent.backends.synthetic.tray_water import heat_of
from agent.model import Reason

CDU, SHELVES = "cdu", "power-shelves"
RENEWED_SECONDS = 5.0
"""Seconds for which a controller shows the same readings."""


class _Unit(Protocol):
    def add_to(self, tree: RedfishTree, root: str, t: float) -> None: ...


class SyntheticService:
    """One service. For one thread at a time, with the tracks of its own on which `unit` looks."""

    def __init__(self, name: str, unit: _Unit, age: Callable[[], float]) -> None:
        """`age` gives the seconds since the scenario began."""
        self._name, self._unit, self._age = name, unit, age
        self._made: tuple[float, RedfishTree] | None = None

    def get(self, path: str) -> dict[str, Any]:
        """One document. Raises DeviceError."""
        t = max(0.0, self._age() // RENEWED_SECONDS * RENEWED_SECONDS)
        if self._made is None or self._made[0] != t:
            tree = RedfishTree(ROOT)
            self._unit.add_to(tree, ROOT, t)
            self._made = (t, tree)
        document = self._made[1].documents.get(path)
        if document is None:
            raise self.error(Reason.UNSUPPORTED, path, "not found (HTTP status 404)")
        return document

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        """What is wrong with one of its documents."""
        return DeviceError(reason, f"synthetic {self._name}{path}: {text}")

    def close(self) -> None:
        """Forget the documents."""
        self._made = None


def services_of_scenario(scenario: Scenario, age: Callable[[], float]) -> dict[str, Callable[[], SyntheticService]]:
    """How each service of the scenario's rack is opened, by its name; none where nothing is told of a rack.

    `age` gives the seconds since the scenario began.
    """
    plant = scenario.topology.rack
    if plant is None:
        return {}
    return {
        CDU: partial(_cooling, scenario, plant, age),
        SHELVES: partial(_power, scenario, plant, age),
    }


def _cooling(scenario: Scenario, plant: RackPlant, age: Callable[[], float]) -> SyntheticService:
    tracks = _tracks(scenario)
    return SyntheticService(
        CDU, RackCooling(scenario, plant, lambda t: plant.nodes * heat_of(scenario.topology, tracks, t)), age
    )


def _power(scenario: Scenario, plant: RackPlant, age: Callable[[], float]) -> SyntheticService:
    draw = PowerDraw(scenario, _tracks(scenario))
    return SyntheticService(
        SHELVES, RackPower(scenario, plant, lambda t: plant.nodes * draw.drawn(t) + plant.further_power), age
    )


def _tracks(scenario: Scenario) -> list[Track]:
    return [Track(scenario, number) for number in range(scenario.topology.gpus)]
