"""GPUs through CuPy. Loaded by `measuring` from this file's path, under a Python that has it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[int], float]
DEVICE_TO_DEVICE = 3
"""cudaMemcpyKind of the CUDA Runtime API."""


class CupyDevices:
    """As `measuring.MeasuredDevices` says. CuPy has no bfloat16, so products are of float16."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self.about = f"CuPy {cupy.__version__}"
        self.number = "float16"

    def count(self) -> int:
        return int(self._runtime.getDeviceCount())

    def memory(self, gpu: int, size: int) -> Run:
        source, target = self._bytes(gpu, size), self._bytes(gpu, size)
        copy, stream = self._runtime.memcpyAsync, self._stream(gpu)
        return self._timed(lambda: copy(target.data.ptr, source.data.ptr, size, DEVICE_TO_DEVICE, stream.ptr), gpu)

    def product(self, gpu: int, edge: int) -> Run:
        cupy = self._cupy
        with cupy.cuda.Device(gpu):
            a, b = (cupy.random.standard_normal((edge, edge), dtype=cupy.float32).astype(cupy.float16) for _ in "ab")
            c = cupy.empty_like(a)
        return self._timed(lambda: cupy.matmul(a, b, out=c), gpu)

    def host(self, gpu: int, size: int, to_gpu: bool) -> Run:
        there = self._bytes(gpu, size)
        here = self._cupy.cuda.alloc_pinned_memory(size)
        copy, stream = self._runtime.memcpyAsync, self._stream(gpu)
        target, source, kind = (there.data.ptr, here.ptr, 1) if to_gpu else (here.ptr, there.data.ptr, 2)
        # The buffers must live as long as their addresses are used.
        return self._timed(lambda: copy(target, source, size, kind, stream.ptr), gpu, holding=(here, there))

    def peer(self, source: int, target: int, size: int) -> Run:
        if not self._runtime.deviceCanAccessPeer(target, source):
            raise LookupError("they cannot access each other's memory")
        there, here = self._bytes(target, size), self._bytes(source, size)
        copy, stream = self._runtime.memcpyPeerAsync, self._stream(source)
        self._open_peer(source, target)
        return self._timed(
            lambda: copy(there.data.ptr, target, here.data.ptr, source, size, stream.ptr), source, target
        )

    def release(self) -> None:
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    def _open_peer(self, gpu: int, other: int) -> None:
        with self._cupy.cuda.Device(gpu):
            try:
                self._runtime.deviceEnablePeerAccess(other)
            except self._runtime.CUDARuntimeError as error:
                if "PeerAccessAlreadyEnabled" not in str(error):
                    raise

    def _stream(self, gpu: int) -> Any:
        with self._cupy.cuda.Device(gpu):
            return self._cupy.cuda.Stream(non_blocking=True)

    def _bytes(self, gpu: int, size: int) -> Any:
        with self._cupy.cuda.Device(gpu):
            return self._cupy.full(size, 1, dtype=self._cupy.uint8)

    def _timed(self, act: Callable[[], object], *gpus: int, holding: object = None) -> Run:
        devices = [self._cupy.cuda.Device(gpu) for gpu in gpus]

        def run(times: int, _held: object = holding) -> float:
            for device in devices:
                device.synchronize()
            began = time.monotonic()
            with devices[0]:
                for _ in range(times):
                    act()
            for device in devices:
                device.synchronize()
            return time.monotonic() - began

        return run


def open_devices() -> CupyDevices:
    """Raises ImportError, or whatever an installation that is broken raises."""
    return CupyDevices(importlib.import_module("cupy"))
