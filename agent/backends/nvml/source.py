"""NVIDIA GPUs through NVML, as a device source for the device worker.

The library is loaded by `open`, in the worker and nowhere else: it may hang for ever or crash. It is
opened once and stays open: opening takes seconds per node when the driver's persistence mode is off.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from agent.backends.nvml.channel import GpuChannel
from agent.backends.nvml.driver import Driver
from agent.backends.nvml.errors import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    VERSION_MISMATCH,
    DriverError,
)
from agent.backends.nvml.events import EventWatch
from agent.backends.nvml.identity import identify
from agent.backends.nvml.wants import wants
from agent.backends.protocol import AbsentError, SourceError
from agent.model import GpuIdentity, Instant, Xid

log = logging.getLogger("coldplate.nvml")

PATIENCE = 5.0
"""Seconds that `open` waits for the GPUs to say who they are, all at a time."""

_REMEDIES = {
    NO_PERMISSION: "run as root, or give the agent access to /dev/nvidiactl and /dev/nvidia*",
    VERSION_MISMATCH: "the driver was replaced by another version: load the new kernel module, or reboot the node",
}


class NvmlSource:
    """Implements `DeviceSource`. `wall` gives the time of an event in seconds since the epoch."""

    name = "nvml"

    def __init__(self, driver: Driver | None = None, *, wall: Callable[[], float], patience: float = PATIENCE) -> None:
        self._driver = driver
        self._wall = wall
        self._patience = patience
        self._closing = threading.Event()
        self._channels: tuple[GpuChannel, ...] = ()
        self._watch: EventWatch | None = None
        self._open = False

    def open(self, now: Instant) -> Sequence[GpuChannel]:  # noqa: ARG002 - the protocol's; nothing is timed here
        """Initialise NVML and enumerate the GPUs. Raises AbsentError or SourceError.

        A GPU that has no handle, no UUID or no answer is left out and logged; the others are not held up.
        """
        driver = self._load()
        count = self._initialise(driver)
        self._watch = EventWatch(driver, self._wall, self._closing.wait)
        self._watch.open()
        found, errors = self._enlist(driver, self._watch, count)
        if not found:
            self.close()
            why = "; ".join(f"GPU {index}: {error}" for index, error in sorted(errors.items())) or "none answers"
            raise SourceError(f"none of the {count} GPUs of this node can be opened ({why})")
        wanted = wants()
        self._channels = tuple(GpuChannel(driver, handle, identity, wanted) for handle, identity in found)
        return self._channels

    def _load(self) -> Driver:
        if self._driver is None:
            # Here and not above: importing the binding costs memory that only the worker should pay.
            from agent.backends.nvml.library import PynvmlDriver

            try:
                self._driver = PynvmlDriver()
            except ImportError as error:
                raise AbsentError(f"the Python module pynvml is missing ({error}): install nvidia-ml-py") from error
        return self._driver

    def _initialise(self, driver: Driver) -> int:
        try:
            driver.call("nvmlInit")
            self._open = True
            count = int(driver.call("nvmlDeviceGetCount_v2"))
        except DriverError as error:
            self.close()
            if error.code == LIBRARY_NOT_FOUND:
                raise AbsentError(
                    "libnvidia-ml.so.1 was not found: install the NVIDIA driver, or mount its libraries"
                ) from error
            if error.code == DRIVER_NOT_LOADED:
                raise AbsentError("the NVIDIA driver is not loaded: load it with 'modprobe nvidia'") from error
            remedy = _REMEDIES.get(error.code)
            raise SourceError(f"NVML cannot be opened: {error}" + (f": {remedy}" if remedy else "")) from error
        if count == 0:
            self.close()
            raise AbsentError("the NVIDIA driver is loaded and finds no GPU: look for them with 'lspci -d 10de:'")
        return count

    def _enlist(
        self, driver: Driver, watch: EventWatch, count: int
    ) -> tuple[list[tuple[object, GpuIdentity]], dict[int, Exception]]:
        """Ask all GPUs at a time who they are: one that hangs is left out, and its thread with it."""
        found: dict[int, tuple[object, GpuIdentity]] = {}
        errors: dict[int, Exception] = {}
        settled = [threading.Event() for _ in range(count)]

        def ask(index: int) -> None:
            try:
                handle, identity = identify(driver, index)
                found[index] = (handle, identity)
                settled[index].set()
                watch.watch(handle, identity.gpu.uuid)
            except (DriverError, SourceError) as error:
                errors[index] = error
            finally:
                settled[index].set()

        for index in range(count):
            threading.Thread(target=ask, args=(index,), name=f"enlist-{index}", daemon=True).start()
        for index, event in enumerate(settled):
            # One shared patience would need a clock; a node where several GPUs hang may wait once for each.
            if not event.wait(self._patience):
                errors[index] = TimeoutError(f"no answer within {self._patience:g} s")
        for index, error in sorted(errors.items()):
            if isinstance(error, SourceError):
                self.close()
                raise error
            log.error("GPU %d is left out: %s", index, error)
        return [found[index] for index in sorted(found) if index not in errors], errors

    def events(self, timeout: float) -> Sequence[Xid]:
        """XID errors of the next `timeout` seconds at most. Raises SourceError."""
        if self._watch is None:
            self._closing.wait(timeout)
            return ()
        return self._watch.wait(timeout)

    def close(self) -> None:
        """Free what is held and shut NVML down; may be called more than once.

        Not to be called while a channel's thread hangs in a call: the caller leaves the process instead.
        """
        self._closing.set()
        if self._driver is None or not self._open:
            return
        self._open = False
        if self._watch is not None:
            self._watch.close()
        for channel in self._channels:
            channel.close()
        try:
            self._driver.call("nvmlShutdown")
        except DriverError as error:
            log.info("%s", error)
