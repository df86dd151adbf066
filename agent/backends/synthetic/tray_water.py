"""The water of a synthetic node: leak detectors and coolant connectors, as its management controller tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp

from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.backends.synthetic.track import Track
from agent.catalogue import equipment
from agent.catalogue.equipment import LEAK_STATES
from agent.model import Metric, Node, Reading, Series

CHASSIS = "Chassis_0"
JOULES_PER_LITER = 3_850.0
"""What a liter takes up for each degree: water with a quarter of propylene glycol."""
FLOW = 0.95
"""Of the rated flow, in a node that is well."""
DROP = 45_000.0  # pascals between supply and return at the rated flow, which go with its square
WATER_TAU = 60.0  # seconds: how slowly the loop follows what feeds it
WORST_LAST = {state: place for place, state in enumerate(("ok", "unavailable", "warning", "critical"))}


class TrayWater:
    """Nothing, for a machine that is cooled by air. Advances the tracks that it is given: it belongs to one thread."""

    def __init__(self, scenario: Scenario, tracks: Sequence[Track]) -> None:
        self._machine, self._tracks = scenario.topology, tracks
        self._warm = [fault for fault in scenario.faults if fault.kind == "coolant-warm"]
        leaks = [fault for fault in scenario.faults if fault.kind == "leak"]
        (row,) = equipment.LEAKS
        self._detectors = [
            (
                [fault for fault in leaks if fault.detector == detector],
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
            said = max((_said(fault, t) for fault in leaks), key=WORST_LAST.__getitem__, default="ok")
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
        flow = FLOW * rated
        heat = sum(track.power(t) + self._machine.module_power for track in self._tracks) * share
        supply = self._machine.inlet + sum(_warmth(fault, t) for fault in self._warm)
        return {
            equipment.SUPPLY: round(supply, 2),
            equipment.RETURN: round(supply + heat / (flow * JOULES_PER_LITER), 2),
            equipment.FLOW: flow,
            equipment.RATED_FLOW: rated,
            equipment.HEAT: round(heat, -1),
            equipment.PRESSURE: DROP * FLOW**2,
        }


def _said(fault: ScenarioFault, t: float) -> str:
    return fault.options["state"] if fault.window.holds(t) else "ok"


def _warmth(fault: ScenarioFault, t: float) -> float:
    """Degrees above what the loop had before, which it takes on and loses slowly."""
    begun = fault.window.begun(t)
    if begun is not None:
        return fault.parameters["degrees"] * (1.0 - exp((begun - t) / WATER_TAU))
    times, length = fault.window.started(t), fault.window.duration
    if not times or length is None:
        return 0.0
    end = fault.window.at + (times - 1) * (fault.window.repeat or 0.0) + length
    return fault.parameters["degrees"] * (1.0 - exp(-length / WATER_TAU)) * exp((end - t) / WATER_TAU)
