"""Reads the GPUs in a process of its own, as this user or as nobody: what may each of them see?

The process is forked before anything has loaded the driver's library, and drops its rights before it loads
it: so the program and its files need not be readable for the other user.
"""

import json
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agent.backends.kmsg import KmsgReader
from agent.backends.nvml.driver import Driver
from agent.backends.protocol import AbsentError, DeviceError, SourceError
from agent.model import Instant, Lane
from tests.lab.hardware.node import LANES, Node, families, reasons_of

NOBODY = 65534
PATIENCE = 60.0
"""Seconds that the other process may take: opening is slow without persistence mode."""
GPM = ("coldplate_gpu_sm_active_ratio", "coldplate_gpu_tensor_active_ratio")


def try_apart(user: int | None, clock: Callable[[], Instant]) -> dict[str, Any]:
    """What a process of `user` (None: this one) sees; never raises. Call it from a process with one thread."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(user, clock, writer)
    os.close(writer)
    try:
        return _listen(reader, child)
    finally:
        os.close(reader)


def _listen(reader: int, child: int) -> dict[str, Any]:
    waiting = select.poll()  # select() takes no descriptor above 1023
    waiting.register(reader, select.POLLIN | select.POLLHUP)
    if not waiting.poll(PATIENCE * 1000):
        # Left alone: what hangs inside the driver cannot be ended, and a kill in mid-call may wedge the GPU.
        return {"outcome": "failed", "detail": f"no answer within {PATIENCE:g} s; process {child} is left behind"}
    with os.fdopen(reader, "rb", closefd=False) as answer:
        data = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not data:
        return {"outcome": "failed", "detail": f"the process ended with {code}" + (" (a crash)" if code < 0 else "")}
    return dict(json.loads(data))


def _child(user: int | None, clock: Callable[[], Instant], writer: int) -> None:
    """The other process: tells what it saw and leaves without running anything of the parent's."""
    status = 1
    try:
        told: dict[str, Any]
        driver = _binding()
        try:
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
        except OSError as error:
            told = {"outcome": "untried", "detail": f"the rights could not be dropped: {error.strerror}"}
        else:
            told = {**_gpus(driver, clock), "kmsg": kernel_log()}
        os.write(writer, json.dumps(told).encode())
        status = 0
    finally:
        os._exit(status)


def _binding() -> Driver | None:
    """The binding, imported while its files can still be read; the library itself is loaded when it is opened."""
    from agent.backends.nvml.pynvml_driver import PynvmlDriver

    try:
        return PynvmlDriver()
    except ImportError:
        return None  # the source tells what is missing


def _gpus(driver: Driver | None, clock: Callable[[], Instant]) -> dict[str, Any]:
    try:
        node = Node(driver, clock)
    except AbsentError as error:
        return {"outcome": "absent", "detail": str(error)}
    except SourceError as error:
        return {"outcome": "failed", "detail": str(error)}
    try:
        samples = []
        reasons: dict[str, str] = {}
        for _ in range(2):  # the second fast sample has GPM's means
            for gpu in range(len(node.channels)):
                for lane in LANES:
                    samples.append(node.read(gpu, lane))
                    reasons |= reasons_of(samples[-1])
            time.sleep(0.15)
        return {
            "outcome": "ok",
            "gpus": len(node.channels),
            "families": families(samples),
            "reasons": reasons,
            "gpm": _gpm(node),
        }
    except (DeviceError, SourceError) as error:
        return {"outcome": "failed", "detail": str(error)}
    finally:
        node.close()


def _gpm(node: Node) -> str:
    """Whether GPM gives values on the first GPU, or why not."""
    sample = node.read(0, Lane.FAST)
    if any(reading.metric.name in GPM for reading in sample.readings):
        return "works"
    return next((why for name, why in reasons_of(sample).items() if name in GPM), "no value and no reason")


def kernel_log() -> str:
    """Whether the kernel log can be followed, or why not."""
    try:
        reader = KmsgReader("/dev/kmsg")
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    try:
        reader.skip()
        with suppress(BlockingIOError):
            reader.read()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    finally:
        reader.close()
    return "works"
