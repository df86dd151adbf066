"""The GPU's place in the NVLink fabric: the state of its registration, its domain, and the fabric's health."""

from __future__ import annotations

from agent.backends.nvml.codes import fabric_codes
from agent.backends.nvml.driver import GpuHandle
from agent.backends.nvml.fabric_health import PROBLEM, FabricHealth
from agent.backends.nvml.return_codes import PERMANENT_CODES, DriverError, describe, escalate, reason_of
from agent.catalogue import metric
from agent.catalogue.links import FABRIC_STATES
from agent.model import Gap, Gpu, Reading, Reason, Series

CALL = "nvmlDeviceGetGpuFabricInfoV"
COMPLETED = FABRIC_STATES.index("completed")
_INFO = metric("coldplate_gpu_fabric_info")
_STATE = metric("coldplate_gpu_fabric_state")


class FabricReader:
    """Reads one GPU's fabric info; a device that does not offer it is asked once."""

    def __init__(self, device: GpuHandle, gpu: Gpu) -> None:
        self._device = device
        self._gpu = gpu
        self._codes = fabric_codes(_STATE, gpu)
        self._health = FabricHealth(gpu)
        self._absent: tuple[Gap, ...] = ()
        self._info: dict[tuple[str, int], Reading] = {}

    def read(self, readings: list[Reading], gaps: list[Gap]) -> None:
        """The state and the health, and the domain once the registration is completed."""
        if self._absent:
            gaps.extend(self._absent)
            return
        try:
            answer = self._device.call(CALL)
        except DriverError as error:
            escalate(error)
            absent = tuple(Gap(row, self._gpu, reason_of(error.code), str(error)) for row in (_INFO, _STATE, PROBLEM))
            if error.code in PERMANENT_CODES:
                self._absent = absent
            gaps.extend(absent)
            return
        state = self._codes.get(answer["state"])
        if state is None:
            detail = f"{CALL}: state {answer['state']} is unknown to this version"
            gaps.extend(Gap(row, self._gpu, Reason.MALFORMED, detail) for row in (_INFO, _STATE))
            return
        readings.extend(state)
        # Before the registration is completed, too: a wrong configuration is why it is not.
        self._health.read(answer.get("health", 0), readings, gaps)
        self._read_domain(answer["state"], answer["status"], (answer["cluster_uuid"], answer["clique"]), readings, gaps)

    def _read_domain(
        self, state: int, status: int, domain: tuple[str, int], readings: list[Reading], gaps: list[Gap]
    ) -> None:
        if state == FABRIC_STATES.index("not_supported"):
            gaps.append(Gap(_INFO, self._gpu, Reason.UNSUPPORTED, f"{CALL}: the GPU has no NVLink fabric"))
        elif state != COMPLETED:
            detail = f"{CALL}: the registration with the fabric is {FABRIC_STATES[state]}"
            gaps.append(Gap(_INFO, self._gpu, Reason.TIMEOUT, detail))
        elif status:
            detail = f"{CALL}: the registration failed with: {describe(status)}"
            gaps.append(Gap(_INFO, self._gpu, Reason.MALFORMED, detail))
        else:
            if domain not in self._info:
                labels = (("cluster_uuid", cluster_text(domain[0])), ("clique", str(domain[1])))
                self._info = {domain: Reading(Series(_INFO, self._gpu, labels), 1.0)}
            readings.append(self._info[domain])


def cluster_text(digits: str) -> str:
    """The cluster's UUID as people write it; empty for the all-zero one of a stand-alone HGX board."""
    if not digits.strip("0"):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
