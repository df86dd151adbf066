"""One GPU as a channel: reads a lane by the GPU's own plan, with its NVLink fabric and processes."""

from collections.abc import Sequence

from agent.backends.nvml.calls import one_hot
from agent.backends.nvml.driver import (
    NOT_FOUND,
    NOT_SUPPORTED,
    PERMANENT_CODES,
    Driver,
    DriverError,
    GpuHandle,
    RefusableRows,
    describe,
    escalate,
)
from agent.backends.nvml.mig import MigReader
from agent.backends.nvml.probe import MIG_MODE_CALL, GpuReadPlan, MetricRequest, Prober
from agent.backends.protocol import BackendSample, DeviceError, GpuProcess
from agent.catalogue import BY_NAME
from agent.catalogue.links import FABRIC_HEALTH, FABRIC_STATES
from agent.model import Gap, Gpu, GpuIdentity, Instant, Lane, Reading, Reason, Series

_FABRIC_PROBLEM = BY_NAME["coldplate_gpu_fabric_problem"]


FABRIC_CALL = "nvmlDeviceGetGpuFabricInfoV"
NOT_SUPPORTED_STATE, COMPLETED, FAILED = map(FABRIC_STATES.index, ("not_supported", "completed", "failed"))
NOTHING_TO_JOIN = frozenset({NOT_SUPPORTED, 0x10006})
"""Statuses of a GPU without a fabric, such as a stand-alone GH200: NVML's own, and the driver's NV_WARN_NOTHING_TO_DO
(nvstatuscodes.h of open-gpu-kernel-modules; gpud pull request 1206)."""
_FABRIC_INFO = BY_NAME["coldplate_gpu_fabric_info"]
_FABRIC_STATE = BY_NAME["coldplate_gpu_fabric_state"]


class FabricReader:
    """Reads one GPU's place in the NVLink fabric: the state of its registration, its domain, and the fabric's health.

    A device that does not offer it is asked once.
    """

    def __init__(self, device: GpuHandle, gpu: Gpu) -> None:
        self._device = device
        self._gpu = gpu
        self._codes = one_hot(_FABRIC_STATE, gpu, FABRIC_STATES)
        self._aspects = [
            (aspect, {code: Series(_FABRIC_PROBLEM, gpu, (("problem", name),)) for code, name in aspect.bad.items()})
            for aspect in FABRIC_HEALTH
        ]
        self._rows = RefusableRows(gpu, _FABRIC_INFO, _FABRIC_STATE, _FABRIC_PROBLEM)
        self._info: dict[tuple[str, int], Reading] = {}

    def read(self, readings: list[Reading], gaps: list[Gap]) -> None:
        """Read the state and the health, and the domain once the registration is completed."""
        answer = self._rows.ask(lambda: self._device.call(FABRIC_CALL), gaps)
        if answer is None:
            return
        code, status = answer["state"], answer["status"]
        if code == COMPLETED and status:  # "must be checked only if state returns complete" (nvml.h)
            code = NOT_SUPPORTED_STATE if status in NOTHING_TO_JOIN else FAILED
        state = self._codes.get(code)
        if state is None:
            detail = f"{FABRIC_CALL}: state {answer['state']} is unknown to this version"
            gaps.extend(Gap(row, self._gpu, Reason.MALFORMED, detail) for row in (_FABRIC_INFO, _FABRIC_STATE))
            return
        readings.extend(state)
        # Before the registration is completed, too: a wrong configuration is why it is not.
        self._read_health(answer.get("health", 0), readings, gaps)
        self._read_domain(code, status, (answer["cluster_uuid"], answer["clique"]), readings, gaps)

    def _read_health(self, mask: int, readings: list[Reading], gaps: list[Gap]) -> None:
        """Give a reading for each problem. What the driver does not report is left out; a newer driver's code is
        neither a problem nor none."""
        problems_read: list[Reading] = []
        unknown: list[str] = []
        for aspect, problems in self._aspects:
            code = mask >> aspect.shift & (1 << aspect.width) - 1
            if code == aspect.good or code in problems:
                problems_read.extend(Reading(series, float(problem == code)) for problem, series in problems.items())
            elif code:
                unknown.append(f"code {code} at bit {aspect.shift} is unknown to this version")
        readings.extend(problems_read)
        if unknown:
            gaps.append(Gap(_FABRIC_PROBLEM, self._gpu, Reason.MALFORMED, f"fabric health: {'; '.join(unknown)}"))
        elif not problems_read:
            gaps.append(Gap(_FABRIC_PROBLEM, self._gpu, Reason.UNSUPPORTED, "fabric health: the driver reports none"))

    def _read_domain(
        self, state: int, status: int, domain: tuple[str, int], readings: list[Reading], gaps: list[Gap]
    ) -> None:
        if state == NOT_SUPPORTED_STATE:
            gaps.append(
                Gap(_FABRIC_INFO, self._gpu, Reason.UNSUPPORTED, f"{FABRIC_CALL}: the GPU has no NVLink fabric")
            )
        elif state == FAILED:
            detail = f"{FABRIC_CALL}: the registration failed with: {describe(status)}"
            gaps.append(Gap(_FABRIC_INFO, self._gpu, Reason.MALFORMED, detail))
        elif state != COMPLETED:
            detail = f"{FABRIC_CALL}: the registration with the fabric is {FABRIC_STATES[state]}"
            gaps.append(Gap(_FABRIC_INFO, self._gpu, Reason.TIMEOUT, detail))
        else:
            if domain not in self._info:
                labels = (("cluster_uuid", cluster_text(domain[0])), ("clique", str(domain[1])))
                self._info = {domain: Reading(Series(_FABRIC_INFO, self._gpu, labels), 1.0)}
            readings.append(self._info[domain])


def cluster_text(digits: str) -> str:
    """Return the cluster's UUID as people write it; empty for the all-zero one of a stand-alone HGX board."""
    if not digits.strip("0"):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_HOLDER, _SM_SHARE = BY_NAME["coldplate_gpu_job_info"], BY_NAME["coldplate_gpu_job_sm_ratio"]
_NO_MEMORY = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_NO_INSTANCE = 2**32 - 1
_PROCESSES_CALL = "nvmlDeviceGetComputeRunningProcesses_v3"
_MPS_CALL = "nvmlDeviceGetMPSComputeRunningProcesses_v3"
"""Lists the clients of an MPS server, which the other call does not list (as nvtop found)."""
_MPS_REST = 3
"""Reads without that call after one that listed nothing: few GPUs are shared through MPS, and it takes driver locks."""
_UTILIZATION_CALL = "nvmlDeviceGetProcessUtilization"


class ProcessReader:
    """Lists the compute processes of one GPU (slow lane); their jobs are determined elsewhere, from procfs.

    Where there are several, the driver is asked how much of the time each had. A call for the list is among the more
    expensive ones (milliseconds on some drivers), and one that the driver refuses permanently is not repeated. On a GPU
    with MIG the driver reports each process's instance, to privileged callers only.
    """

    def __init__(self, device: GpuHandle, gpu: Gpu) -> None:
        self._device = device
        self._holder = RefusableRows(gpu, _HOLDER)
        self._sm_share = RefusableRows(gpu, _SM_SHARE)
        self._has_mps = True
        self._mps_rest = 0
        """Reads for which an MPS server without clients is not asked again."""
        self._newest = 0
        """Time of the newest utilization sample that was read, in microseconds."""

    def read(self, gaps: list[Gap]) -> tuple[GpuProcess, ...] | None:
        """Return all processes, in the order of their ids; None and a gap if they cannot be listed."""
        entries = self._holder.ask(lambda: [*self._device.call(_PROCESSES_CALL), *self._mps_clients()], gaps)
        if entries is None:
            return None
        memory_by_process = {(pid, instance): memory for pid, memory, instance, *_ in entries}
        shares = self._shares(gaps) if len(memory_by_process) > 1 else {}
        return tuple(
            GpuProcess(
                pid,
                None if memory == _NO_MEMORY else memory,
                None if instance == _NO_INSTANCE else instance,
                shares.get(pid),
            )
            for (pid, instance), memory in sorted(memory_by_process.items())
        )

    def _mps_clients(self) -> list[tuple[int, ...]]:
        """List them, each time while there are any; a driver that refuses permanently is not asked again."""
        if not self._has_mps:
            return []
        if self._mps_rest:
            self._mps_rest -= 1
            return []
        try:
            clients: list[tuple[int, ...]] = self._device.call(_MPS_CALL)
        except DriverError as error:
            if error.code not in PERMANENT_CODES:
                raise
            self._has_mps = False
            return []
        self._mps_rest = 0 if clients else _MPS_REST
        return clients

    def _shares(self, gaps: list[Gap]) -> dict[int, float]:
        """Return each process's mean share of SM time since the last read; the driver lists those that ran."""
        if self._sm_share.refused:
            gaps.extend(self._sm_share.refused)
            return {}
        try:
            samples = self._device.call(_UTILIZATION_CALL, self._newest)
        except DriverError as error:
            if error.code != NOT_FOUND:  # that no process ran since is no failure
                gaps.extend(self._sm_share.gaps(error))
            return {}
        percents: dict[int, list[int]] = {}
        for pid, stamp, percent in samples:
            if stamp > self._newest and percent <= 100:  # some drivers fill unused samples with all ones
                percents.setdefault(pid, []).append(percent)
        self._newest = max([self._newest, *(stamp for _, stamp, percent in samples if percent <= 100)])
        return {pid: sum(shares) / len(shares) / 100 for pid, shares in percents.items()}


class NvmlGpuChannel:
    """Samples one GPU. Its key is the GPU's UUID. Used by one thread."""

    def __init__(
        self, driver: Driver, handle: object, identity: GpuIdentity, requests: Sequence[MetricRequest]
    ) -> None:
        self.key = identity.gpu.uuid
        self.identity: GpuIdentity | None = identity
        self._gpu = identity.gpu
        self._driver = driver
        self._device = GpuHandle(driver, handle)
        self._requests = requests
        self._plan: GpuReadPlan | None = None
        self._fabric = FabricReader(self._device, self._gpu)
        self._mig = MigReader(driver, self._device, self._gpu)
        self._processes = ProcessReader(self._device, self._gpu)

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read one lane; the first read also probes what the GPU supports.

        Raises DeviceError when the GPU is lost or denies everything, SourceError when the driver is gone.
        """
        self._device.calls = 0
        if lane is Lane.COLD and self._plan is not None and self._plan_is_outdated(self._plan):
            self._discard_plan()
        if self._plan is None:
            self._plan = Prober(self._driver, self._device, self._gpu, self._requests).plan()
        plan = self._plan.lanes[lane]
        readings: list[Reading] = []
        gaps: list[Gap] = []
        if lane is Lane.SLOW and self._plan.mig:
            self._mig.read_usage(now, readings, gaps)
        plan.read(self._device, now, readings, gaps)
        if lane is Lane.COLD:
            self._fabric.read(readings, gaps)
            if self._plan.mig:
                self._mig.read_info(readings, gaps)
        processes = self._processes.read(gaps) if lane is Lane.SLOW else None
        if gaps:
            gaps = [*plan.gaps, *gaps]
        if lane is Lane.FAST:
            self._check_evidence(readings, gaps or plan.gaps)
        return BackendSample(readings, gaps or plan.gaps, (), self._device.calls, processes)

    def _check_evidence(self, readings: Sequence[Reading], gaps: Sequence[Gap]) -> None:
        """Raise DeviceError if every value that a fast sample requested failed: nothing shows that the GPU works.

        Values that the GPU does not offer are not requested, so they are no failure.
        """
        failures = [gap for gap in gaps if gap.reason is not Reason.UNSUPPORTED]
        if readings or not failures:
            return
        if any(gap.reason is Reason.DENIED for gap in failures):
            raise DeviceError(
                Reason.DENIED,
                f"the driver denies access to GPU {self._gpu.index}; run as root or "
                "give the agent access to /dev/nvidia*",
            )
        raise DeviceError(failures[0].reason, f"no value can be read: {failures[0].detail}")

    def _plan_is_outdated(self, plan: GpuReadPlan) -> bool:
        """Return True if the plan lacks what could not be read when it was made, or if MIG was switched since then."""
        if plan.is_provisional:
            return True
        try:
            return bool(self._device.call(MIG_MODE_CALL) != int(plan.mig))
        except DriverError as error:
            escalate(error)
            return False

    def _discard_plan(self) -> None:
        plan, self._plan = self._plan, None
        if plan is not None:
            try:
                plan.gpm.close()
            except DriverError:
                return  # the library that owned the buffers is gone, and the buffers with it

    def close(self) -> None:
        """Free what the library holds for this GPU; may be called more than once."""
        self._mig.close()
        self._discard_plan()
