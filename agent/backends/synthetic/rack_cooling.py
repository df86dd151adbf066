"""The coolant distribution unit of a synthetic rack: what its Redfish service tells of it at a moment."""

from __future__ import annotations

from collections.abc import Callable

from agent.backends.synthetic.coolant_loop import CoolantLoop
from agent.backends.synthetic.machines import RackPlant
from agent.backends.synthetic.redfish_tree import (
    CRITICAL,
    OK,
    WARNING,
    Document,
    RedfishTree,
    excerpt,
    redundancy,
    status,
)
from agent.backends.synthetic.scenario import Scenario
from agent.backends.synthetic.tray_water import JOULES_PER_LITER, leak_said, rise_of

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
    """Knows no state: any moment can be asked for. `heat` gives the watts of the whole rack at one."""

    def __init__(self, scenario: Scenario, plant: RackPlant, heat: Callable[[float], float]) -> None:
        self._inlet, self._plant, self._heat = scenario.topology.inlet, plant, heat
        self._loop = CoolantLoop(scenario)
        self._low = [fault for fault in scenario.faults if fault.kind == "reservoir-low"]
        self._leaks = {
            detector: [fault for fault in scenario.faults if fault.kind == "leak" and fault.part == detector]
            for detector in plant.leak_detectors
        }

    def add_to(self, tree: RedfishTree, root: str, t: float) -> None:
        """The unit's documents at `t`."""
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
        tree.part(
            path, "EnvironmentMetrics", {"TemperatureCelsius": excerpt(AIR), "HumidityPercent": excerpt(HUMIDITY)}
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
        """The loop to the rack, and the one of the facility, which carries the same heat."""
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
        """A detector; one that is unavailable is switched on and says nothing that a schema knows."""
        return {**status(), "DetectorState": _DETECTOR_SAYS.get(leak_said(self._leaks[name], t), "Unknown")}


def _loop(supply: float, rise: float, flow: float, heat: float) -> Document:
    return {
        **status(),
        "SupplyTemperatureCelsius": excerpt(supply, 2),
        "ReturnTemperatureCelsius": excerpt(supply + rise, 2),
        "FlowLitersPerMinute": excerpt(60 * flow),
        "HeatRemovedkW": excerpt(heat / 1e3),
    }
