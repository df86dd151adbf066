"""SXids of the node's NVSwitches, as the kernel log would have been read: a counter appears with its first error."""

from __future__ import annotations

from collections.abc import Iterator

from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.catalogue import metric
from agent.model import Labels, Node, Reading, Series

FIRST_BUS = 0xC1
"""The PCI bus of switch 0; the others follow it."""


class SwitchErrors:
    """Counts the onsets of all faults of this kind, by switch, code and grade."""

    def __init__(self, scenario: Scenario) -> None:
        row = metric("coldplate_node_nvswitch_sxid_errors_total")
        self._faults: dict[Series, list[ScenarioFault]] = {}
        for fault in scenario.faults:
            if fault.kind == "sxid":
                self._faults.setdefault(Series(row, Node(), _labels(fault)), []).append(fault)

    def readings(self, t: float) -> Iterator[Reading]:
        """What was counted by `t`, in seconds of the scenario."""
        for series, faults in self._faults.items():
            count = sum(fault.window.started(t) * fault.parameters["times"] for fault in faults)
            if count:
                yield Reading(series, count)


def _labels(fault: ScenarioFault) -> Labels:
    pci = f"0000:{FIRST_BUS + int(fault.parameters['switch']):02x}:00.0"
    return ("pci", pci), ("sxid", str(int(fault.parameters["code"]))), ("grade", fault.options["words"])
