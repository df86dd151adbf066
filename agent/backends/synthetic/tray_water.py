"""The water of a synthetic node: leak detectors and coolant connectors, as its management controller tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.backends.synthetic.coolant_loop import CoolantLoop
from agent.backends.synthetic.machines import Topology
from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.backends.synthetic.track import Track
from agent.catalogue import equipment
from agent.catalogue.equipment import LEAK_STATES
from agent.model import Metric, Node, Reading, Series

CHASSIS = "Chassis_0"
JOULES_PER_LITER = 3_850.0
"""What a liter takes up for each degree: water with a quarter of propylene glycol."""
DROP = 45_000.0  # pascals between supply and return at the rated flow, which go with its square
MOST_RISE = 60.0
"""Degrees above the supply at which coolant returns at most: what stands still takes up no more."""
WORST_LAST = {state: place for place, state in enumerate(("ok", "unavailable", "warning", "critical"))}


class TrayWater:
    """Nothing, for a machine that is cooled by air. Advances the tracks that it is given: it belongs to one thread."""

    def __init__(self, scenario: Scenario, tracks: Sequence[Track]) -> None:
        self._machine, self._tracks = scenario.topology, tracks
        self._loop = CoolantLoop(scenario)
        leaks = [fault for fault in scenario.faults if fault.kind == "leak"]
        (row,) = equipment.LEAKS
        self._detectors = [
            (
                [fault for fault in leaks if fault.part == detector],
                [
                    (state, Series(row, Node(), (("chassis", CHASSIS), ("detector", detector), ("state", state))))
                    for state in LEAK_STATES
                ],
            )
            for detector in self._machine.leak_detectors
        ]
        self._connectors = [
            {row: Series(row, Node(), (("chassis", CHASSIS), ("connector", each))) for row in equipment.COOLANT}
            for each in self._machine.connectors
        ]

    def readings(self, t: float) -> Iterator[Reading]:
        """What the detectors and the connectors say at `t`."""
        for leaks, states in self._detectors:
            said = leak_said(leaks, t)
            for state, series in states:
                yield Reading(series, float(state == said))
        if self._connectors:
            values = self._values(t)
            for rows in self._connectors:
                for row, series in rows.items():
                    yield Reading(series, values[row])

    def _values(self, t: float) -> dict[Metric, float]:
        """Those of one connector; all have the same share of the node's heat."""
        share = 1.0 / len(self._connectors)
        rated = self._machine.rated_flow * share
        flow = self._loop.flow(t)
        rise = rise_of(heat_of(self._machine, self._tracks, t) * share, flow * rated)
        supply = self._machine.inlet + self._loop.warmth(t)
        return {
            equipment.SUPPLY: round(supply, 2),
            equipment.RETURN: round(supply + rise, 2),
            equipment.FLOW: flow * rated,
            equipment.RATED_FLOW: rated,
            equipment.HEAT: round(rise * flow * rated * JOULES_PER_LITER, -1),
            equipment.PRESSURE: DROP * flow**2,
        }


def heat_of(machine: Topology, tracks: Sequence[Track], t: float) -> float:
    """Watts that a node gives to its coolant."""
    return sum(track.power(t) + machine.module_power for track in tracks)


def rise_of(heat: float, flow: float) -> float:
    """Degrees by which so many liters a second get warmer that take up so many watts."""
    return min(heat / (flow * JOULES_PER_LITER), MOST_RISE)


def leak_said(faults: Sequence[ScenarioFault], t: float) -> str:
    """What a detector says to which these are done."""
    return max((_said(fault, t) for fault in faults), key=WORST_LAST.__getitem__, default="ok")


def _said(fault: ScenarioFault, t: float) -> str:
    return fault.options["state"] if fault.window.holds(t) else "ok"
