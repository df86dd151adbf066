"""The Redfish services of a synthetic rack's cooling and power: documents in the place of a network.

The reader of real services reads them, with its search, its states and its errors. The documents link to each other as
DMTF's schemas have them (DSP8010).
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import ROOT
from agent.backends.synthetic.coolant_loop import CoolantLoop
from agent.backends.synthetic.gpu_history import Track
from agent.backends.synthetic.machines import RackPlant
from agent.backends.synthetic.non_gpu_channel import JOULES_PER_LITER, NodePowerModel, heat_of, leak_state, rise_of
from agent.backends.synthetic.scenario import Scenario
from agent.model import Reason

Document = dict[str, Any]
OK, WARNING, CRITICAL = "OK", "Warning", "Critical"


class Linked(dict[str, Any]):
    """A document with a path of its own: a link to it stands in its place."""


class Collection(dict[str, Document]):
    """Documents by their Ids: a link to the collection of them stands in their place."""


def documents_below(path: str, document: Document) -> dict[str, Document]:
    """Return a document, and all that it links to, by their paths."""
    own_document: Document = {"@odata.id": path}
    documents = {path: own_document}
    for member, value in document.items():
        place = f"{path.rstrip('/')}/{member}"
        if isinstance(value, Collection):
            for resource, part in value.items():
                documents |= documents_below(f"{place}/{resource}", part)
            value = Linked(Members=[{"@odata.id": f"{place}/{resource}"} for resource in value])
        if isinstance(value, Linked):
            documents |= documents_below(place, value)
            value = {"@odata.id": place}
        own_document[member] = value
    return documents


def status(health: str = OK, **members: Any) -> Document:
    """Return a part that is switched on, how it is, and what else it says."""
    return {"Status": {"State": "Enabled", "Health": health}, **members}


def excerpt(value: float, digits: int = 1) -> Document:
    """Return a sensor's reading, as precise as a controller gives it."""
    return {"Reading": round(value, digits)}


def redundancy(name: str, needed: int, members: int, health: str) -> list[Document]:
    """Return a part's one redundancy group, with the number of members that have to work."""
    return [
        status(health, GroupName=name, RedundancyType="NPlusM", MinNeededInGroup=needed, MaxSupportedInGroup=members)
    ]


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


def cooling_root(scenario: Scenario, plant: RackPlant, heat: float, t: float) -> Document:
    """Return the root of the service of the coolant distribution unit at `t`; `heat` is the whole rack's watts."""
    loop, leaks = CoolantLoop(scenario), scenario.faults_of("leak")
    failed = loop.failed(t)
    is_low = any(fault.window.holds(t) for fault in scenario.faults_of("reservoir-low"))
    humid = (100 * fault.parameters["humidity"] for fault in scenario.faults_of("humid-air") if fault.window.holds(t))
    reservoir = status(FluidLevelStatus=WARNING if is_low else OK, FluidLevelPercent=excerpt(LOW if is_low else LEVEL))
    pressure = excerpt(FILTER_KPA * loop.flow(t) ** 2)
    strainer = status(DeltaLiquidPressurekPa=pressure, ServiceHours=2100, RatedServiceHours=8760)
    detectors = {
        name: _detector(leak_state([fault for fault in leaks if fault.part == name], t))
        for name in plant.leak_detectors
    }
    unit = status(
        Id="1",
        EquipmentType="CDU",
        PumpRedundancy=redundancy("Pumps", 1, len(plant.pumps), CRITICAL if failed else OK),
        Pumps=Collection({pump: _pump(pump, failed) for pump in plant.pumps}),
        Reservoirs=Collection({"1": reservoir}),
        Filters=Collection({"1": strainer}),
        LeakDetection=Linked(status(LeakDetectors=Collection(detectors))),
        EnvironmentMetrics=Linked(TemperatureCelsius=excerpt(AIR), HumidityPercent=excerpt(max([HUMIDITY, *humid]))),
        **_loops(loop, scenario.topology.inlet, plant, heat, t),
    )
    return {"ThermalEquipment": Linked(CDUs=Collection({"1": unit}))}


def _loops(loop: CoolantLoop, inlet: float, plant: RackPlant, heat: float, t: float) -> Document:
    """Return the loop to the rack, and the one of the facility, which carries the same heat."""
    share = loop.flow(t)
    flow = share * plant.rated_flow
    supply, rise = inlet + loop.warmth(t), rise_of(heat, flow)
    removed = rise * flow * JOULES_PER_LITER
    secondary = {
        **_loop(supply, rise, flow, removed),
        "RatedFlowLitersPerMinute": round(60 * plant.rated_flow, 1),
        "SupplyPressurekPa": excerpt(RETURN_KPA + PRESSURE_KPA * share**2),
        "ReturnPressurekPa": excerpt(RETURN_KPA),
        "DeltaPressurekPa": excerpt(PRESSURE_KPA * share**2),
    }
    primary = _loop(supply - APPROACH, FACILITY_RISE, removed / (FACILITY_RISE * JOULES_PER_LITER), removed)
    return {
        "SecondaryCoolantConnectors": Collection({"1": secondary}),
        "PrimaryCoolantConnectors": Collection({"1": primary}),
    }


def _detector(state: str) -> Document:
    """Return a detector; one that is unavailable is switched on and says nothing that a schema knows."""
    return status(DetectorState=_DETECTOR_SAYS.get(state, "Unknown"))


def _pump(pump: str, failed: set[str]) -> Document:
    if pump in failed:
        return status(CRITICAL, PumpSpeedPercent=excerpt(0))
    return status(PumpSpeedPercent=excerpt(FULL if failed else CRUISE))


def _loop(supply: float, rise: float, flow: float, heat: float) -> Document:
    return status(
        SupplyTemperatureCelsius=excerpt(supply, 2),
        ReturnTemperatureCelsius=excerpt(supply + rise, 2),
        FlowLitersPerMinute=excerpt(60 * flow),
        HeatRemovedkW=excerpt(heat / 1e3),
    )


EFFICIENCY = 0.97
"""Output power over input power of a supply."""
HEADROOM = 1.25
"""Rated current of an input over the full-load current of its shelf: a breaker carries 80% of its rating for long."""


def power_root(scenario: Scenario, plant: RackPlant, draw: float, t: float) -> Document:
    """Return the root of the service of the power shelves at `t`: those whose feed is there share the load.

    `draw` is the watts that the whole rack takes.
    """
    lost = {fault.part for fault in scenario.faults_of("feed-lost") if fault.window.holds(t)}
    failed = {fault.part for fault in scenario.faults_of("supply-failure") if fault.window.holds(t)}
    feeds = {str(number + 1): plant.feeds[number % len(plant.feeds)] for number in range(plant.shelves)}
    fed = [shelf for shelf, feed in feeds.items() if feed not in lost]
    load = draw / len(fed) if fed else 0.0
    shelves = {
        shelf: _shelf(plant, feed, load if shelf in fed else None, shelf in failed) for shelf, feed in feeds.items()
    }
    return {"PowerEquipment": Linked(PowerShelves=Collection(shelves))}


def _shelf(plant: RackPlant, feed: str, load: float | None, fails: bool) -> Document:
    """Return a shelf at this load in watts (None without an input); its first supply may fail."""
    output, has_input = load or 0.0, load is not None
    input_watts = output / EFFICIENCY
    line = excerpt(input_watts / (sqrt(3) * plant.input_volts))
    mains = status(
        Voltage=excerpt(plant.input_volts if has_input else 0.0),
        PowerWatts=excerpt(input_watts, 0),
        PolyPhaseCurrentAmps={"Line1": line, "Line2": line, "Line3": line},
        RatedCurrentAmps=round(HEADROOM * plant.supplies * plant.supply_rating / (sqrt(3) * plant.input_volts)),
    )
    supplies = {
        f"PSU{number + 1}": status(
            CRITICAL if fails and number == 0 else OK,
            PowerCapacityWatts=plant.supply_rating,
            LineInputStatus="Normal" if has_input else "LossOfInput",
            Metrics=Linked(OutputPowerWatts=excerpt(output / plant.supplies, 0)),
        )
        for number in range(plant.supplies)
    }
    fed = OK if has_input else CRITICAL
    return status(
        EquipmentType="PowerShelf",
        PowerSupplyRedundancy=redundancy("Supplies", plant.supplies - 1, plant.supplies, fed),
        Metrics=Linked(PowerWatts=excerpt(output, 0)),
        Mains=Collection({feed: mains}),
        PowerSupplies=Collection(supplies),
    )


CDU, SHELVES = "cdu", "power-shelves"
RENEWED_SECONDS = 5.0
"""Seconds for which a controller shows the same readings."""


class SyntheticService:
    """One Redfish service, for one thread at a time: what it shows is computed from GPU histories of its own.

    `root` returns the root with all below it at a time; `age` gives the seconds since the scenario began.
    """

    def __init__(self, name: str, root: Callable[[float], Document], age: Callable[[], float]) -> None:
        self._name, self._root, self._age = name, root, age
        self._cached: tuple[float, dict[str, Document]] | None = None

    def get(self, path: str) -> dict[str, Any]:
        t = max(0.0, self._age() // RENEWED_SECONDS * RENEWED_SECONDS)
        if self._cached is None or self._cached[0] != t:
            self._cached = (t, documents_below(ROOT, self._root(t)))
        document = self._cached[1].get(path)
        if document is None:
            raise self.error(Reason.UNSUPPORTED, path, "not found (HTTP status 404)")
        return document

    def error(self, reason: Reason, path: str, text: str) -> DeviceError:
        return DeviceError(reason, f"synthetic {self._name}{path}: {text}")

    def close(self) -> None:
        self._cached = None


def services_of_scenario(scenario: Scenario, age: Callable[[], float]) -> dict[str, Callable[[], SyntheticService]]:
    """Return how each service of the scenario's rack is opened, by its name; none for a scenario without a rack.

    `age` gives the seconds since the scenario began.
    """
    plant = scenario.topology.rack
    if plant is None:
        return {}

    machine = scenario.topology

    def cooling() -> SyntheticService:
        tracks = _tracks(scenario)
        return SyntheticService(
            CDU, lambda t: cooling_root(scenario, plant, plant.nodes * heat_of(machine, tracks, t), t), age
        )

    def power() -> SyntheticService:
        node = NodePowerModel(scenario, _tracks(scenario))
        return SyntheticService(
            SHELVES, lambda t: power_root(scenario, plant, plant.nodes * node.drawn(t) + plant.further_power, t), age
        )

    return {CDU: cooling, SHELVES: power}


def _tracks(scenario: Scenario) -> list[Track]:
    return [Track(scenario, number) for number in range(scenario.topology.gpus)]
