"""The power shelves of a synthetic rack: what their Redfish service tells of them at a moment."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from agent.backends.synthetic.machines import RackPlant
from agent.backends.synthetic.redfish_tree import CRITICAL, OK, Document, RedfishTree, excerpt, redundancy, status
from agent.backends.synthetic.scenario import Scenario

EFFICIENCY = 0.97
"""What a supply gives of what it takes."""
HEADROOM = 1.25
"""What an input is rated for, of what its shelf takes at its own rating: breakers carry 80% for long."""


class RackPower:
    """Knows no state: any moment can be asked for. `draw` gives the watts that the whole rack takes at one."""

    def __init__(self, scenario: Scenario, plant: RackPlant, draw: Callable[[float], float]) -> None:
        self._plant, self._draw = plant, draw
        self._lost = [fault for fault in scenario.faults if fault.kind == "feed-lost"]
        self._failed = [fault for fault in scenario.faults if fault.kind == "supply-failure"]

    def add_to(self, tree: RedfishTree, root: str, t: float) -> None:
        """The shelves' documents at `t`: those whose feed is there share the load evenly."""
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
