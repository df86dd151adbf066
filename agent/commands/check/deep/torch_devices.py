"""GPUs through PyTorch. Loaded by `measuring` from this file's path, under a Python that has it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[int], float]


class TorchDevices:
    """As `measuring.MeasuredDevices` says. `device` may be cpu, which tries the same calls without a GPU."""

    def __init__(self, torch: Any, device: str = "cuda") -> None:
        self._torch = torch
        self._device = device
        cuda = torch.version.cuda or getattr(torch.version, "hip", None)
        self.about = f"PyTorch {torch.__version__}" + (f", CUDA {cuda}" if cuda else "")
        self.number = "float32"
        self._type = torch.float32

    def count(self) -> int:
        if self._device == "cpu":
            return 2
        torch = self._torch
        torch.cuda.init()
        if torch.cuda.get_device_capability(0)[0] >= 7:
            # bfloat16 came with the tensor cores of Ampere.
            self.number = "bfloat16" if torch.cuda.get_device_capability(0)[0] >= 8 else "float16"
            self._type = getattr(torch, self.number)
        return int(torch.cuda.device_count())

    def memory(self, gpu: int, size: int) -> Run:
        source, target = self._bytes(gpu, size), self._bytes(gpu, size)
        return self._timed(lambda: target.copy_(source), gpu)

    def product(self, gpu: int, edge: int) -> Run:
        torch = self._torch
        a, b = (torch.randn(edge, edge, device=self._place(gpu), dtype=self._type) for _ in range(2))
        c = torch.empty_like(a)
        return self._timed(lambda: torch.matmul(a, b, out=c), gpu)

    def host(self, gpu: int, size: int, to_gpu: bool) -> Run:
        torch = self._torch
        there = self._bytes(gpu, size)
        here = torch.empty(size, dtype=torch.uint8, pin_memory=self._device != "cpu")
        here.fill_(1)
        target, source = (there, here) if to_gpu else (here, there)
        return self._timed(lambda: target.copy_(source, non_blocking=True), gpu)

    def peer(self, source: int, target: int, size: int) -> Run:
        if self._device != "cpu" and not self._torch.cuda.can_device_access_peer(target, source):
            raise LookupError("they cannot access each other's memory")
        there, here = self._bytes(target, size), self._bytes(source, size)
        return self._timed(lambda: there.copy_(here, non_blocking=True), source, target)

    def release(self) -> None:
        if self._device != "cpu":
            self._torch.cuda.empty_cache()

    def _place(self, gpu: int) -> str:
        return "cpu" if self._device == "cpu" else f"{self._device}:{gpu}"

    def _bytes(self, gpu: int, size: int) -> Any:
        # Filled, as pages that were never written may be all the same one.
        return self._torch.full((size,), 1, dtype=self._torch.uint8, device=self._place(gpu))

    def _timed(self, act: Callable[[], object], *gpus: int) -> Run:
        def settle() -> None:
            for gpu in gpus if self._device != "cpu" else ():
                self._torch.cuda.synchronize(gpu)

        def run(times: int) -> float:
            settle()
            began = time.monotonic()
            for _ in range(times):
                act()
            settle()
            return time.monotonic() - began

        return run


def open_devices() -> TorchDevices:
    """Raises ImportError, or whatever an installation that is broken raises."""
    torch = importlib.import_module("torch")
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        raise ImportError(f"PyTorch {torch.__version__} is made for processors alone")
    return TorchDevices(torch)
