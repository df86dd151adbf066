"""The one path of all NVML calls: the driver as a table of calls, its return codes, and calls that may never return.

A test, or a recording made on a real machine, replaces the library by a table from a call's name and
arguments to a value or an error code. Nothing above this interface imports pynvml.

Nothing here swallows a code: each becomes a gap, a DeviceError or a SourceError. The numbers are NVML's own
(`nvmlReturn_t`, nvidia-ml-py 13).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from agent.backends.protocol import DeviceError, SourceError
from agent.model import Reason


class Driver(Protocol):
    """NVML as a call table. Handles, samples and event sets are opaque, hashable tokens."""

    def call(self, name: str, *args: Any) -> Any:
        """Call the NVML function `name` and return its answer in plain Python types.

        A number, a string, or a dict from a part's name to a number; `nvmlDeviceGetFieldValues` and
        `nvmlGpmMetricsGet` fill the array that they are given. Raises DriverError with NVML's code;
        a function that the installed driver or binding lacks is code 13 (FUNCTION_NOT_FOUND).
        """


class GpuHandle:
    """One GPU's handle, and the count of the calls made with it. Used by one thread at a time."""

    __slots__ = ("_driver", "calls", "handle")

    def __init__(self, driver: Driver, handle: object) -> None:
        self._driver = driver
        self.handle = handle
        self.calls = 0

    def call(self, name: str, *args: object) -> Any:
        """Call an NVML function whose first argument is this device."""
        self.calls += 1
        return self._driver.call(name, self.handle, *args)


class CallThreads:
    """Makes calls that may never return: each in its own thread, and never two with the same name at a time.

    A thread that hangs in the driver cannot be killed. It is kept, and no other is started for it, until it returns.
    """

    def __init__(self) -> None:
        self._out: set[str] = set()
        self._back = threading.Condition()

    def send(self, name: str, call: Callable[[], None]) -> bool:
        """Make the call in a thread; False if one of that name is still in flight, or no thread can be started."""
        with self._back:
            if name in self._out:
                return False
            self._out.add(name)
        try:
            threading.Thread(target=self._run, args=(name, call), name=name, daemon=True).start()
        except (RuntimeError, MemoryError):
            self._returned(name)
            return False
        return True

    def is_out(self, name: str) -> bool:
        return name in self._out

    @property
    def busy(self) -> bool:
        return bool(self._out)

    def wait(self, names: Iterable[str], timeout: float) -> None:
        """Wait until all of these have returned, for at most `timeout` seconds in all."""
        awaited = set(names)
        with self._back:
            self._back.wait_for(lambda: not awaited & self._out, timeout)

    def _run(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._returned(name)

    def _returned(self, name: str) -> None:
        with self._back:
            self._out.discard(name)
            self._back.notify_all()


UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
VGPU_ECC_NOT_SUPPORTED = 22
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
NOT_READY = 27
GPU_NOT_FOUND = 28

_TEXTS = {
    UNINITIALIZED: "the library is not initialised",
    INVALID_ARGUMENT: "invalid argument",
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    DRIVER_NOT_LOADED: "the driver is not loaded",
    TIMEOUT: "timeout",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 was not found",
    FUNCTION_NOT_FOUND: "the driver is too old to have this function",
    GPU_IS_LOST: "the GPU is lost",
    RESET_REQUIRED: "the GPU requires a reset",
    17: "blocked by the operating system",
    VERSION_MISMATCH: "library and driver versions differ",
    21: "no data",
    ARGUMENT_VERSION_MISMATCH: "the driver does not support this version of the call",
    DEPRECATED: "withdrawn by the driver",
    NOT_READY: "not ready",
    GPU_NOT_FOUND: "GPU not found",
    29: "invalid state",
    999: "unknown error",
}

SOURCE_CODES = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH})
"""The library must be opened again, in a new process."""
DEVICE_CODES = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""The GPU as a whole is out of order."""
UNSUPPORTED_CODES = frozenset(
    # INVALID_ARGUMENT is an older driver's answer to a field id that it does not know.
    {INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, VGPU_ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED}
)
PERMANENT_CODES = UNSUPPORTED_CODES | {NO_PERMISSION}
"""Will not change while the library is open: such a value is asked for once, then left out."""

_REASONS = {
    **dict.fromkeys(UNSUPPORTED_CODES, Reason.UNSUPPORTED),
    NO_PERMISSION: Reason.DENIED,
    GPU_IS_LOST: Reason.LOST,
    RESET_REQUIRED: Reason.LOST,
    GPU_NOT_FOUND: Reason.LOST,
    TIMEOUT: Reason.TIMEOUT,
    NOT_READY: Reason.TIMEOUT,
}


class DriverError(Exception):
    """One NVML call, or one field of a batch, ended with a code other than success."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.call = call
        self.code = code

    def __str__(self) -> str:
        return f"{self.call}: {describe(self.code)}"


def describe(code: int) -> str:
    return f"{_TEXTS.get(code, 'NVML error')} ({code})"


def reason_of(code: int) -> Reason:
    """Return why a reading is absent when its call ended with this code."""
    return _REASONS.get(code, Reason.MALFORMED)


def escalate(error: DriverError) -> None:
    """Raise DeviceError or SourceError when the code says that more than this one call is out of order."""
    escalate_source(error)
    if error.code in DEVICE_CODES:
        raise DeviceError(Reason.LOST, str(error)) from error


def escalate_source(error: DriverError) -> None:
    """Raise SourceError when the code says that the driver is gone; for calls that do not read a GPU."""
    if error.code in SOURCE_CODES:
        raise SourceError(f"{error}; NVML must be opened again in a new process") from error
