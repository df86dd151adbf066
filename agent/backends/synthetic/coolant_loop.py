"""The loop that cools a rack's machines, as its faults leave it: how warm it comes in, and how much of it flows."""

from collections.abc import Iterable
from math import exp

from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import Scenario, ScenarioFault

OF_COOLANT = frozenset({"coolant-warm", "pump-failure"})
"""Faults of the loop, which reach all GPUs."""
FLOW = 0.95
"""Of the rated flow, in a loop that is well."""
ALONE = 0.9
"""Of that, if a pump is left alone: it runs faster."""
STANDING = 0.02
"""Of that, without a pump: warm water rises by itself."""
STANDING_WARMTH = 45.0
"""Degrees by which GPUs get warmer in coolant that stands: more than they can take at full load."""
WATER_TAU = 60.0  # seconds: how slowly the loop follows what feeds it


class CoolantLoop:
    """What the faults of a scenario make of the loop. Knows no state: any moment can be asked for."""

    def __init__(self, scenario: Scenario) -> None:
        self._machine = scenario.topology
        self._warm = scenario.faults_of("coolant-warm")
        self._slow = scenario.faults_of("coolant-slow")
        self._pumps = scenario.faults_of("pump-failure")

    def warmth(self, t: float) -> float:
        """Return degrees above what comes in while all is well."""
        return sum(_warmth(fault, t) for fault in self._warm)

    def failed(self, t: float) -> set[str]:
        return {fault.part for fault in self._pumps if fault.window.holds(t)}

    def flow(self, t: float) -> float:
        """Return the flow, as a share of what it is rated for."""
        failed = self.failed(t)
        remaining = min((fault.parameters["flow"] for fault in self._slow if fault.window.holds(t)), default=1.0)
        if not failed:
            return FLOW * remaining
        return FLOW * remaining * (STANDING if _stands(self._machine, failed) else ALONE)


def warmed(machine: MachineType, faults: Iterable[ScenarioFault]) -> float:
    """Return degrees by which the GPUs get warmer in the end, while these faults hold."""
    faults = list(faults)
    warm = sum(fault.parameters["degrees"] for fault in faults if fault.kind == "coolant-warm")
    stands = _stands(machine, {fault.part for fault in faults if fault.kind == "pump-failure"})
    return warm + (STANDING_WARMTH if stands else 0.0)


def _stands(machine: MachineType, failed: set[str]) -> bool:
    return machine.rack is not None and failed.issuperset(machine.rack.pumps)


def _warmth(fault: ScenarioFault, t: float) -> float:
    """Return degrees that one fault adds, which the loop takes on and loses slowly."""
    begun = fault.window.begun(t)
    if begun is not None:
        return fault.parameters["degrees"] * (1.0 - exp((begun - t) / WATER_TAU))
    times, length = fault.window.started(t), fault.window.duration
    if not times or length is None:
        return 0.0
    end = fault.window.onset(times) + length
    return fault.parameters["degrees"] * (1.0 - exp(-length / WATER_TAU)) * exp((end - t) / WATER_TAU)
