"""One GPU as a channel: reads a lane by the GPU's own plan. Used by one thread."""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.nvml.driver import Driver, GpuHandle
from agent.backends.nvml.fabric_reader import FabricReader
from agent.backends.nvml.mig import MigReader
from agent.backends.nvml.probe import LanePlan, Plan, Prober
from agent.backends.nvml.processes import ProcessReader
from agent.backends.nvml.return_codes import DriverError
from agent.backends.nvml.wants import Want
from agent.backends.protocol import BackendSample, DeviceError
from agent.model import Gap, GpuIdentity, Instant, Lane, Reading, Reason


class NvmlGpuChannel:
    """Samples one GPU. Its key is the GPU's UUID."""

    def __init__(self, driver: Driver, handle: object, identity: GpuIdentity, wanted: Sequence[Want]) -> None:
        self.key = identity.gpu.uuid
        self.identity: GpuIdentity | None = identity
        self._gpu = identity.gpu
        self._driver = driver
        self._device = GpuHandle(driver, handle)
        self._wanted = wanted
        self._plan: Plan | None = None
        self._fabric = FabricReader(self._device, self._gpu)
        self._mig = MigReader(driver, self._device, self._gpu)
        self._processes = ProcessReader(self._device, self._gpu)

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read one lane; the first read also probes what the GPU supports.

        Raises DeviceError when the GPU is lost or denies everything, SourceError when the driver is gone.
        """
        self._device.calls = 0
        if self._plan is None:
            self._plan = Prober(self._driver, self._device, self._gpu, self._wanted).plan()
        plan = self._plan.lanes[lane]
        readings: list[Reading] = []
        gaps: list[Gap] = []
        if plan.gpm:
            # First, so that `now` is the sample's own time: a slow call before it would shorten its interval.
            plan.gpm.read(self._device, now, readings, gaps)
        if plan.fields:
            plan.fields.read(self._device, readings, gaps)
        for query in plan.queries:
            query.read(self._device, readings, gaps)
        if lane is Lane.SLOW and self._plan.mig:
            self._mig.read_memory(readings, gaps)
        if lane is Lane.COLD:
            self._fabric.read(readings, gaps)
            if self._plan.mig:
                self._mig.read_info(readings, gaps)
        processes = self._processes.read(gaps) if lane is Lane.SLOW else None
        self._refuse_denied(lane, plan, readings)
        return BackendSample(readings, (*plan.gaps, *gaps) if gaps else plan.gaps, (), self._device.calls, processes)

    def _refuse_denied(self, lane: Lane, plan: LanePlan, readings: list[Reading]) -> None:
        """A GPU that denies every value is out of order as a whole."""
        if lane is Lane.FAST and not readings and any(gap.reason is Reason.DENIED for gap in plan.gaps):
            raise DeviceError(Reason.DENIED, f"the driver denies access to GPU {self._gpu.index}; run as root or "
                              "give the agent access to /dev/nvidia*")  # fmt: skip

    def close(self) -> None:
        """Free what the library holds for this GPU; may be called more than once."""
        plan, self._plan = self._plan, None
        sampler = plan.lanes[Lane.FAST].gpm if plan else None
        if sampler is not None:
            try:
                sampler.close()
            except DriverError:
                return  # the library that owned the buffers is gone, and the buffers with it
