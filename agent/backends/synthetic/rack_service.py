"""The Redfish services of a synthetic rack's cooling and power: documents in the place of a network.

The reader of real services reads them, with its search, its states and its errors. The documents link to each other as
DMTF's schemas have them (DSP8010).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import ROOT
from agent.backends.synthetic.coolant_loop import CoolantLoop
from agent.backends.synthetic.gpu_history import Track
from agent.backends.synthetic.machines import RackPlant
from agent.backends.synthetic.non_gpu_channel import JOULES_PER_LITER, NodePowerModel, heat_of, leak_said, rise_of
from agent.backends.synthetic.scenario import Scenario
from agent.model import Reason

Document = dict[str, Any]
OK, WARNING, CRITICAL = "OK", "Warning", "Critical"


class RedfishTree:
    """Documents by their paths; the root is there from the beginning."""

    def __init__(self, root: str) -> None:
        self.documents: dict[str, Document] = {}
        self.add(root, {})

    def add(self, path: str, document: Document) -> str:
        """Return a document of its own; returns its path."""
        self.documents[path] = {"@odata.id": path, **document}
        return path

    def part(self, owner: str, member: str, document: Document) -> str:
        """Return a document that another one links to as its `member`; returns its path."""
        path = f"{owner.rstrip('/')}/{member}"
        self.documents[owner][member] = {"@odata.id": path}
        return self.add(path, document)

    def collection(self, owner: str, member: str, documents: Mapping[str, Document]) -> str:
        """Return a collection of documents, by their Ids, that another one links to; returns its path."""
        path = self.part(owner, member, {})
        links = [{"@odata.id": self.add(f"{path}/{each}", document)} for each, document in documents.items()]
        self.documents[path]["Members"] = links
        return path


def status(health: str = OK) -> Document:
    """Return a part that is switched on, and how it is."""
    return {"Status": {"State": "Enabled", "Health": health}}


def excerpt(value: float, digits: int = 1) -> Document:
    """Return a sensor's reading, as precise as a controller gives it."""
    return {"Reading": round(value, digits)}


def redundancy(name: str, needed: int, members: int, health: str) -> Document:
    """Return a redundancy group, with the number of members that have to work."""
    return {"GroupName": name, "RedundancyType": "NPlusM", "MinNeededInGroup": needed, "MaxSupportedInGroup": members,
            **status(health)}  # fmt: skip


APPROACH = 7.0  # degrees by which the rack's supply is warmer than the facility's
FACILITY_RISE = 6.0
PRESSURE_KPA = 120.0  # of the supply over the return, at the rated flow
RETURN_KPA = 110.0
FILTER_KPA = 14.0
LEVEL, LOW = 88.0, 23.0
"""Percent of a reservoir."""
CRUISE, FULL = 62.0, 93.0
"""Percent of the speed at which a pump runs beside another one, and alone."""
AIR, HUMIDITY = 24.0, 42.0
_DETECTOR_SAYS = {"ok": "OK", "warning": "Warning", "critical": "Critical"}


class RackCooling:
    """The coolant distribution unit, at any moment: it has no state. `heat` gives the whole rack's watts at one."""

    def __init__(self, scenario: Scenario, plant: RackPlant, heat: Callable[[float], float]) -> None:
        self._inlet, self._plant, self._heat = scenario.topology.inlet, plant, heat
        self._loop = CoolantLoop(scenario)
        self._low = [fault for fault in scenario.faults if fault.kind == "reservoir-low"]
        self._humid = [fault for fault in scenario.faults if fault.kind == "humid-air"]
        self._leaks = {
            detector: [fault for fault in scenario.faults if fault.kind == "leak" and fault.part == detector]
            for detector in plant.leak_detectors
        }

    def add_to(self, tree: RedfishTree, root: str, t: float) -> None:
        """Add the unit's documents at `t`."""
        equipment = tree.part(root, "ThermalEquipment", {})
        group = redundancy("Pumps", 1, len(self._plant.pumps), CRITICAL if self._loop.failed(t) else OK)
        unit = {"Id": "1", "EquipmentType": "CDU", **status(), "PumpRedundancy": [group]}
        path = f"{tree.collection(equipment, 'CDUs', {'1': unit})}/1"
        tree.collection(path, "Pumps", self._pumps(t))
        is_low = any(fault.window.holds(t) for fault in self._low)
        said = {"FluidLevelStatus": WARNING if is_low else OK, "FluidLevelPercent": excerpt(LOW if is_low else LEVEL)}
        tree.collection(path, "Reservoirs", {"1": {**status(), **said}})
        pressure = {"DeltaLiquidPressurekPa": excerpt(FILTER_KPA * self._loop.flow(t) ** 2)}
        tree.collection(
            path, "Filters", {"1": {**status(), **pressure, "ServiceHours": 2100, "RatedServiceHours": 8760}}
        )
        self._add_loops(tree, path, t)
        detection = tree.part(path, "LeakDetection", status())
        tree.collection(detection, "LeakDetectors", {name: self._detector(name, t) for name in self._leaks})
        humidity = max([HUMIDITY, *(100 * each.parameters["humidity"] for each in self._humid if each.window.holds(t))])
        tree.part(
            path, "EnvironmentMetrics", {"TemperatureCelsius": excerpt(AIR), "HumidityPercent": excerpt(humidity)}
        )

    def _pumps(self, t: float) -> dict[str, Document]:
        failed = self._loop.failed(t)
        speed = FULL if failed else CRUISE
        return {
            pump: {**status(CRITICAL), "PumpSpeedPercent": excerpt(0)}
            if pump in failed
            else {**status(), "PumpSpeedPercent": excerpt(speed)}
            for pump in self._plant.pumps
        }

    def _add_loops(self, tree: RedfishTree, path: str, t: float) -> None:
        """Add the loop to the rack, and the one of the facility, which carries the same heat."""
        warmth, share = self._loop.warmth(t), self._loop.flow(t)
        flow = share * self._plant.rated_flow
        supply, rise = self._inlet + warmth, rise_of(self._heat(t), flow)
        heat = rise * flow * JOULES_PER_LITER
        secondary = {
            **_loop(supply, rise, flow, heat),
            "RatedFlowLitersPerMinute": round(60 * self._plant.rated_flow, 1),
            "SupplyPressurekPa": excerpt(RETURN_KPA + PRESSURE_KPA * share**2),
            "ReturnPressurekPa": excerpt(RETURN_KPA),
            "DeltaPressurekPa": excerpt(PRESSURE_KPA * share**2),
        }
        primary = _loop(supply - APPROACH, FACILITY_RISE, heat / (FACILITY_RISE * JOULES_PER_LITER), heat)
        tree.collection(path, "SecondaryCoolantConnectors", {"1": secondary})
        tree.collection(path, "PrimaryCoolantConnectors", {"1": primary})

    def _detector(self, name: str, t: float) -> Document:
        """Return a detector; one that is unavailable is switched on and says nothing that a schema knows."""
        return {**status(), "DetectorState": _DETECTOR_SAYS.get(leak_said(self._leaks[name], t), "Unknown")}


def _loop(supply: float, rise: float, flow: float, heat: float) -> Document:
    return {
        **status(),
        "SupplyTemperatureCelsius": excerpt(supply, 2),
        "ReturnTemperatureCelsius": excerpt(supply + rise, 2),
        "FlowLitersPerMinute": excerpt(60 * flow),
        "HeatRemovedkW": excerpt(heat / 1e3),
    }


EFFICIENCY = 0.97
"""What a supply gives of what it takes."""
HEADROOM = 1.25
"""What an input is rated for, of what its shelf takes at its own rating: breakers carry 80% for long."""


class RackPower:
    """The power shelves, at any moment: they have no state. `draw` gives the watts that the whole rack takes at one."""

    def __init__(self, scenario: Scenario, plant: RackPlant, draw: Callable[[float], float]) -> None:
        self._plant, self._draw = plant, draw
        self._lost = [fault for fault in scenario.faults if fault.kind == "feed-lost"]
        self._failed = [fault for fault in scenario.faults if fault.kind == "supply-failure"]

    def add_to(self, tree: RedfishTree, root: str, t: float) -> None:
        """Add the shelves' documents at `t`: those whose feed is there share the load evenly."""
        plant = self._plant
        lost = {fault.part for fault in self._lost if fault.window.holds(t)}
        feeds = {str(number + 1): plant.feeds[number % len(plant.feeds)] for number in range(plant.shelves)}
        fed = [shelf for shelf, feed in feeds.items() if feed not in lost]
        load = self._draw(t) / len(fed) if fed else 0.0
        equipment = tree.part(root, "PowerEquipment", {})
        shelves = tree.collection(equipment, "PowerShelves", {shelf: self._shelf(shelf in fed) for shelf in feeds})
        for shelf, feed in feeds.items():
            fails = any(fault.part == shelf and fault.window.holds(t) for fault in self._failed)
            self._add_parts(tree, f"{shelves}/{shelf}", feed, load if shelf in fed else None, fails)

    def _shelf(self, fed: bool) -> Document:
        supplies = self._plant.supplies
        group = redundancy("Supplies", supplies - 1, supplies, OK if fed else CRITICAL)
        return {"EquipmentType": "PowerShelf", **status(), "PowerSupplyRedundancy": [group]}

    def _add_parts(self, tree: RedfishTree, shelf: str, feed: str, load: float | None, fails: bool) -> None:
        """Add the parts of a shelf, at this load in watts (None without an input); its first supply may fail."""
        plant, given = self._plant, load or 0.0
        taken = given / EFFICIENCY
        tree.part(shelf, "Metrics", {"PowerWatts": excerpt(given, 0)})
        line = excerpt(taken / (sqrt(3) * plant.input_volts))
        mains = {
            **status(),
            "Voltage": excerpt(plant.input_volts if load is not None else 0.0),
            "PowerWatts": excerpt(taken, 0),
            "PolyPhaseCurrentAmps": {"Line1": line, "Line2": line, "Line3": line},
            "RatedCurrentAmps": round(HEADROOM * plant.supplies * plant.supply_rating / (sqrt(3) * plant.input_volts)),
        }
        tree.collection(shelf, "Mains", {feed: mains})
        supply = {
            **status(),
            "PowerCapacityWatts": plant.supply_rating,
            "LineInputStatus": "Normal" if load is not None else "LossOfInput",
        }
        names = [f"PSU{number + 1}" for number in range(plant.supplies)]
        failed = {**supply, **status(CRITICAL)}
        members = {name: dict(failed if fails and name == names[0] else supply) for name in names}
        supplies = tree.collection(shelf, "PowerSupplies", members)
        for name in names:
            tree.part(f"{supplies}/{name}", "Metrics", {"OutputPowerWatts": excerpt(given / plant.supplies, 0)})


CDU, SHELVES = "cdu", "power-shelves"
RENEWED_SECONDS = 5.0
"""Seconds for which a controller shows the same readings."""


class SyntheticService:
    """One service. For one thread at a time, with the tracks of its own on which the unit looks.

    `add` puts the unit's documents at a time below a path; `age` gives the seconds since the scenario began.
    """

    def __init__(self, name: str, add: Callable[[RedfishTree, str, float], None], age: Callable[[], float]) -> None:
        self._name, self._add, self._age = name, add, age
        self._made: tuple[float, RedfishTree] | None = None

    def get(self, path: str) -> dict[str, Any]:
        t = max(0.0, self._age() // RENEWED_SECONDS * RENEWED_SECONDS)
        if self._made is None or self._made[0] != t:
            tree = RedfishTree(ROOT)
            self._add(tree, ROOT, t)
            self._made = (t, tree)
        document = self._made[1].documents.get(path)
        if document is None:
            raise self.error(Reason.UNSUPPORTED, path, "not found (HTTP status 404)")
        return document

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        return DeviceError(reason, f"synthetic {self._name}{path}: {text}")

    def close(self) -> None:
        self._made = None


def services_of_scenario(scenario: Scenario, age: Callable[[], float]) -> dict[str, Callable[[], SyntheticService]]:
    """Return how each service of the scenario's rack is opened, by its name; none for a scenario without a rack.

    `age` gives the seconds since the scenario began.
    """
    plant = scenario.topology.rack
    if plant is None:
        return {}

    def cooling() -> SyntheticService:
        tracks = _tracks(scenario)
        unit = RackCooling(scenario, plant, lambda t: plant.nodes * heat_of(scenario.topology, tracks, t))
        return SyntheticService(CDU, unit.add_to, age)

    def power() -> SyntheticService:
        draw = NodePowerModel(scenario, _tracks(scenario))
        unit = RackPower(scenario, plant, lambda t: plant.nodes * draw.drawn(t) + plant.further_power)
        return SyntheticService(SHELVES, unit.add_to, age)

    return {CDU: cooling, SHELVES: power}


def _tracks(scenario: Scenario) -> list[Track]:
    return [Track(scenario, number) for number in range(scenario.topology.gpus)]
