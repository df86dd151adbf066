"""The error counters and fault flags of one GPU and its links, as driven by the scenario's faults."""

from __future__ import annotations

from agent.backends.synthetic.fault_effects import Tally
from agent.backends.synthetic.noise import mix
from agent.backends.synthetic.offered_series import Key
from agent.backends.synthetic.scenario import Scenario, ScenarioFault

ECC = "coldplate_gpu_ecc_errors_total"
ECC_OF_LIFE = "coldplate_gpu_ecc_aggregate_errors_total"
REMAPS = "coldplate_gpu_row_remaps_total"
ACTION = "coldplate_gpu_recovery_action"
LINK_ERRORS = "coldplate_nvlink_errors_total"
TOTALS = "coldplate_gpu_nvlink_errors_total"
TOTAL_OF = {"crc": "crc_flit"}
"""The GPU's name for a type of error summed over all links, where it differs from the link's own."""


class ErrorCounts:
    """Values that differ from the healthy constants, by key; a link's key has the link's number second."""

    def __init__(self, scenario: Scenario, gpu: int) -> None:
        def of(kind: str) -> list[ScenarioFault]:
            return [fault for fault in scenario.faults if fault.kind == kind and gpu in fault.gpus]

        ecc, self._remaps = of("ecc"), of("row-remap")
        self._down, self._pcie = of("nvlink-down"), of("pcie")
        self._corrected = Tally(ecc, "corrected_rate", "corrected")
        self._uncorrected = Tally(ecc, "uncorrected_rate", "uncorrected")
        self._remapped = {
            cause: Tally(self._remaps, "", cause) for cause in ("correctable", "uncorrectable")
        }  # fmt: skip
        self._replays = Tally(self._pcie, "replay_rate", "replays")
        self._life = float(mix(scenario.seed, gpu, 41) % 7)  # corrected errors of the years before
        self._links: dict[tuple[int, str], Tally] = {}
        for fault in of("nvlink-errors"):
            place = (fault.link, fault.options["type"])
            same = [f for f in of("nvlink-errors") if (f.link, f.options["type"]) == place]
            self._links[place] = Tally(same, "rate", "burst")

    def at(self, t: float) -> dict[Key, float]:
        corrected, uncorrected = self._corrected.at(t), self._uncorrected.at(t)
        values: dict[Key, float] = {
            (ECC, "corrected"): corrected,
            (ECC, "uncorrected"): uncorrected,
            (ECC_OF_LIFE, "corrected"): corrected + self._life,
            (ECC_OF_LIFE, "uncorrected"): uncorrected,
        }
        if self._remaps:
            self._rows(values, t)
        if self._pcie:
            self._bus(values, t)
        for fault in self._down:
            if fault.window.holds(t):
                values["coldplate_nvlink_up", str(fault.link)] = 0.0
        for (link, kind), tally in self._links.items():
            count = tally.at(t)
            values[LINK_ERRORS, str(link), kind] = count
            total = (TOTALS, TOTAL_OF.get(kind, kind))
            values[total] = values.get(total, 0.0) + count
        return values

    def _rows(self, values: dict[Key, float], t: float) -> None:
        for cause, tally in self._remapped.items():
            values[REMAPS, cause] = tally.at(t)
        for fault in self._remaps:
            if not fault.window.holds(t):
                continue
            if fault.parameters["pending"]:
                values["coldplate_gpu_row_remap_pending",] = 1.0
                values[ACTION, "none"], values[ACTION, "gpu_reset"] = 0.0, 1.0
            if fault.parameters["failure"]:
                values["coldplate_gpu_row_remap_failure",] = 1.0
                values[ACTION, "none"], values[ACTION, "gpu_reset"] = 0.0, 0.0
                values[ACTION, "drain_and_reset"] = 1.0

    def _bus(self, values: dict[Key, float], t: float) -> None:
        values["coldplate_gpu_pcie_replays_total",] = self._replays.at(t)
        for fault in self._pcie:
            if fault.window.holds(t):
                values["coldplate_gpu_pcie_link_width",] = fault.parameters["width"]
                values["coldplate_gpu_pcie_link_generation",] = fault.parameters["generation"]
