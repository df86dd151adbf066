"""The processes that use one GPU (slow lane); their jobs are determined elsewhere, from procfs.

The call is among the more expensive ones (milliseconds on some drivers), and one that the driver refuses permanently
is not repeated. On a GPU with MIG the driver reports each process's instance, to privileged callers only.
"""

from __future__ import annotations

from agent.backends.nvml.driver import GpuHandle
from agent.backends.nvml.return_codes import PERMANENT_CODES, DriverError, escalate, reason_of
from agent.backends.protocol import GpuProcess
from agent.catalogue import metric
from agent.model import Gap, Gpu

_ROW = metric("coldplate_gpu_job_info")
_NO_MEMORY = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_NO_INSTANCE = 2**32 - 1
_CALL = "nvmlDeviceGetComputeRunningProcesses_v3"


class ProcessReader:
    """Lists the compute processes of one GPU."""

    def __init__(self, device: GpuHandle, gpu: Gpu) -> None:
        self._device = device
        self._gpu = gpu
        self._refusal: Gap | None = None

    def read(self, gaps: list[Gap]) -> tuple[GpuProcess, ...] | None:
        """All processes, in the order of their ids; None and a gap if they cannot be listed."""
        if self._refusal is not None:
            gaps.append(self._refusal)
            return None
        try:
            entries = self._device.call(_CALL)
        except DriverError as error:
            escalate(error)
            gap = Gap(_ROW, self._gpu, reason_of(error.code), str(error))
            if error.code in PERMANENT_CODES:
                self._refusal = gap
            gaps.append(gap)
            return None
        return tuple(
            GpuProcess(pid, None if memory == _NO_MEMORY else memory, None if instance == _NO_INSTANCE else instance)
            for pid, memory, instance, *_ in sorted(entries)
        )
