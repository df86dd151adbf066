"""Measures GPUs: a program of its own, run by whatever Python has PyTorch or CuPy.

It imports nothing of this project, as that Python does not have it. Standard input is one JSON object:

    {"libraries": [FILE...], "limit": SECONDS, "each": SECONDS, "cpus": [LIST...], "sizes": {NAME: SIZE...},
     "steps": [[KIND, GPU...]...]}

`libraries` are the files of the two libraries' devices, `limit` is when the process ends itself if nobody else does,
`each` how long a step measures, and `cpus` are the processors near each GPU. Standard output is a JSON object a line:
`said` is absent, loaded, ready, begin, value, failed, broken or done; after absent, broken and done nothing follows.
Every step is announced before it begins, so that whoever reads knows which one hung.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

Run = Callable[[int], float]
"""Does something so many times; the seconds that it took."""
ROUNDS = 3
"""The fastest of them counts: what a moment of somebody else's work costs is no fault of the GPU's."""
MOST_AT_ONCE = 10_000
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class MeasuredDevices(Protocol):
    """GPUs through one library, numbered as CUDA_VISIBLE_DEVICES lists them. Methods raise what the library raises."""

    about: str
    number: str

    def count(self) -> int:
        """How many there are. The first call opens the driver."""

    def memory(self, gpu: int, size: int) -> Run:
        """Copies of so many bytes within the GPU's memory."""

    def product(self, gpu: int, edge: int) -> Run:
        """Products of two square matrices."""

    def host(self, gpu: int, size: int, to_gpu: bool) -> Run:
        """Copies between the GPU and pinned memory of the host."""

    def peer(self, source: int, target: int, size: int) -> Run:
        """Copies from one GPU to another. Raises LookupError where neither can reach the other's memory."""

    def release(self) -> None:
        """Give back memory that nothing uses any more."""


def measure(devices: MeasuredDevices, plan: dict[str, Any], say: Callable[..., None]) -> None:
    """Every step of the plan, until one fails for good: what comes after it would only fail as well."""
    for number, (kind, *gpus) in enumerate(plan["steps"]):
        say(said="begin", step=number)
        try:
            go_near(plan["cpus"][gpus[0]])
            say(said="value", step=number, value=rate(devices, kind, gpus, plan))
        except Exception as error:
            harmless = is_harmless(error)
            say(said="failed" if harmless else "broken", step=number, text=f"{type(error).__name__}: {error}"[:300])
            if not harmless:
                return
        # What an exception's frames held is free only when they are gone.
        gc.collect()
        devices.release()
    say(said="done")


def rate(devices: MeasuredDevices, kind: str, gpus: Sequence[int], plan: dict[str, Any]) -> float:
    """Bytes, or floating-point operations, a second."""
    sizes = plan["sizes"]
    if kind == "memory":
        run, work = devices.memory(gpus[0], sizes["memory"]), 2.0 * sizes["memory"]  # read and written
    elif kind == "product":
        run, work = devices.product(gpus[0], sizes["product"]), 2.0 * sizes["product"] ** 3
    elif kind == "peer":
        run, work = devices.peer(gpus[0], gpus[1], sizes["copy"]), float(sizes["copy"])
    else:
        run, work = devices.host(gpus[0], sizes["copy"], kind == "to-gpu"), float(sizes["copy"])
    each: float = plan["each"]
    return float(work / fastest(run, each))


def fastest(run: Run, seconds: float) -> float:
    """Seconds of one time, in the fastest of a few rounds that take so long together."""
    run(1)  # loads the kernels, and raises the clocks
    once = max(run(2) / 2, 1e-9)
    times = max(1, min(MOST_AT_ONCE, int(seconds / ROUNDS / once)))
    return min(run(times) / times for _ in range(ROUNDS))


def is_harmless(error: Exception) -> bool:
    """Whether the next step may be tried: there is no memory or no way to a peer, and nothing is broken."""
    return isinstance(error, (LookupError, MemoryError)) or "out of memory" in str(error).lower()


def go_near(cpus: str) -> None:
    """Run on these processors, as `0-15,32`, so that pinned memory is near the GPU; anywhere if that is not allowed."""
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, set(listed(cpus)))


def listed(cpus: str) -> Iterator[int]:
    """The numbers of a list as Linux writes it."""
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def open_devices(files: Sequence[str]) -> tuple[MeasuredDevices | None, str]:
    """The first library that can be imported, or why none can."""
    reasons = []
    for file in files:
        try:
            devices: MeasuredDevices = runpy.run_path(file)["open_devices"]()
        except Exception as error:  # whatever an import runs into is the answer
            reasons.append(f"{type(error).__name__}: {error}".splitlines()[0][:150])
        else:
            return devices, ""
    return None, "; ".join(reasons)


def confine(limit: float) -> None:
    """End with whoever started this, or at the limit; be the first that the kernel ends for memory."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main() -> int:
    """Measure what standard input asks for."""
    plan = json.load(sys.stdin)
    confine(plan["limit"])
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints does not come between the lines

    def say(**words: Any) -> None:
        out.write(json.dumps(words) + "\n")

    devices, why = open_devices(plan["libraries"])
    if devices is None:
        say(said="absent", text=why)
        return 0
    say(said="loaded", text=devices.about)
    try:
        count = devices.count()
    except Exception as error:
        say(said="absent", text=f"{devices.about}: {type(error).__name__}: {error}"[:300])
        return 0
    say(said="ready", value=count, text=devices.number)
    if count == len(plan["cpus"]):
        measure(devices, plan, say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
