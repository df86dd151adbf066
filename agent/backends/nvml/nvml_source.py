"""NVIDIA GPUs through NVML, as a device source for the device worker.

Only `open` loads the library, only in the worker: it may hang forever or crash. It is
opened once and stays open: opening takes seconds per node when the driver's persistence mode is off.
"""

import ctypes
import logging
import threading
from collections.abc import Callable, Sequence

from agent.backends.nvml.channel import NvmlGpuChannel
from agent.backends.nvml.driver import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    UNKNOWN,
    VERSION_MISMATCH,
    CallThreads,
    Driver,
    DriverError,
)
from agent.backends.nvml.gpu_enumeration import GpuEnumerator
from agent.backends.nvml.probe import metric_requests
from agent.backends.nvml.xid_event_set import XidEventSet
from agent.backends.protocol import AbsentError, Roster, SourceError
from agent.model import GpuIdentity, Instant, Xid

log = logging.getLogger("coldplate.nvml")

TIMEOUT_SECONDS = 2.0
"""Seconds that `open` waits for all GPUs together to identify themselves: a silent GPU must show within five."""
REGISTRATION_SECONDS = 0.5
"""Seconds that `open` waits for the GPUs to be registered for events, so that none that comes soon after is missed."""

_REMEDIES = {
    NO_PERMISSION: "run as root, or give the agent access to /dev/nvidiactl and /dev/nvidia*",
    VERSION_MISMATCH: "the driver was replaced by a different version: load the new kernel module, or reboot the node",
    UNKNOWN: "see the kernel log (journalctl -k --grep NVRM), then reload the driver or reboot the node",
}


LIBRARY = "libnvidia-ml.so.1"


def why_unloadable() -> str:
    """Return why the library, which is there, cannot be loaded: a container may have mounted it empty.

    Empty where no library is found. The binding reports both alike.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        text = str(error)
        return "" if text.startswith(LIBRARY) and "No such file" in text else text
    return ""


def load_library() -> Driver:
    """Return the installed library. Raises AbsentError."""
    # Imported here, because the binding costs memory that only the worker should pay.
    from agent.backends.nvml.pynvml_driver import PynvmlDriver

    try:
        return PynvmlDriver()
    except ImportError as error:
        raise AbsentError(f"the Python module pynvml is missing ({error}): install nvidia-ml-py") from error


class NvmlSource:
    """Implements `DeviceSource`. `wall` gives the time of an event in seconds since the epoch.

    `load` gives the driver where none is given. Raises AbsentError or SourceError.
    """

    name = "nvml"

    def __init__(
        self,
        driver: Driver | None = None,
        *,
        wall: Callable[[], float],
        timeout: float = TIMEOUT_SECONDS,
        load: Callable[[], Driver] = load_library,
    ) -> None:
        self._load = load
        self._driver = driver
        self._wall = wall
        self._timeout = timeout
        self._closing = threading.Event()
        self._call_threads = CallThreads()
        self._enumerator: GpuEnumerator | None = None
        self._watch: XidEventSet | None = None
        self._open = False

    def open(self, now: Instant) -> Sequence[NvmlGpuChannel]:
        """Initialise NVML and enumerate the GPUs. Raises AbsentError or SourceError.

        A GPU that has no handle, no UUID or no answer yet is missing from the result, and `roster` asks it again; the
        others are not delayed.
        """
        if self._driver is None:
            self._driver = self._load()
        driver = self._driver
        count = self._initialise(driver)
        self._watch = watch = XidEventSet(driver, self._wall, self._closing.wait, self._call_threads)
        watch.open()
        requests = metric_requests()

        def make(handle: object, identity: GpuIdentity) -> NvmlGpuChannel:
            watch.watch(handle, identity.gpu.uuid)
            return NvmlGpuChannel(driver, handle, identity, requests)

        self._enumerator = GpuEnumerator(driver, self._call_threads, make, self._timeout)
        self._enumerator.start(count, now.mono)
        watch.wait_for_registrations(min(self._timeout, REGISTRATION_SECONDS))
        self.roster(now)
        return self._enumerator.channels()

    def roster(self, now: Instant) -> Roster:
        """Return the GPUs that have identified themselves, and those that have not. Raises SourceError."""
        if self._enumerator is None:
            return Roster(())
        self._enumerator.poll(now.mono)
        return self._enumerator.roster()

    def _initialise(self, driver: Driver) -> int:
        try:
            driver.call("nvmlInit")
            self._open = True
            count = int(driver.call("nvmlDeviceGetCount_v2"))
        except DriverError as error:
            self.close()
            if error.code == LIBRARY_NOT_FOUND:
                if problem := why_unloadable():
                    advice = "install the NVIDIA driver again, or mount its libraries again"
                    raise SourceError(f"{LIBRARY} cannot be loaded: {problem}: {advice}") from error
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

    def events(self, timeout: float) -> Sequence[Xid]:
        """Return XID errors of the next `timeout` seconds at most. Raises SourceError."""
        if self._watch is None:
            self._closing.wait(timeout)
            return ()
        return self._watch.wait(timeout)

    def close(self) -> None:
        """Free what is held and shut NVML down; may be called more than once.

        While a GPU hangs in a call of this source, the library is left as it is: the process is about to end. Not
        to be called while a channel's thread hangs.
        """
        self._closing.set()
        if self._driver is None or not self._open:
            return
        self._open = False
        if self._call_threads.any_in_flight:
            log.info("NVML shutdown skipped: a call to a GPU hangs")
            return
        if self._watch is not None:
            self._watch.close()
        if self._enumerator is not None:
            for channel in self._enumerator.channels():
                channel.close()
        try:
            self._driver.call("nvmlShutdown")
        except DriverError as error:
            log.info("%s", error)
