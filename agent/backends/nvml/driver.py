"""The interface of all NVML calls, NVML's return codes, and threads for calls that may never return.

A test, or a recording made on a real machine, replaces the library by a table from a call's name and arguments to a
value or an error code. Nothing above this interface imports pynvml.

Every return code other than success becomes a gap, a DeviceError or a SourceError. The numbers are NVML's own
(`nvmlReturn_t`, nvidia-ml-py 13).
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from agent.backends.protocol import DeviceError, SourceError
from agent.model import Gap, Gpu, Metric, Reason


class Driver(Protocol):
    """NVML as a call table. Handles, samples and event sets are opaque, hashable tokens."""

    def call(self, name: str, *args: Any) -> Any:
        """Call the NVML function `name` and return its answer in plain Python types.

        That is a number, a string, a tuple, or a dict from a member's name to a number; `nvmlDeviceGetFieldValues` and
        `nvmlGpmMetricsGet` fill the array that they are given. Raises DriverError with NVML's return code; a function
        that the installed driver or binding lacks has code 13 (FUNCTION_NOT_FOUND).
        """


class GpuHandle:
    """One GPU's handle, and the number of calls made with it. For one thread at a time."""

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
    """Makes calls that may never return: each in its own thread, and never two of the same name at a time.

    A thread that hangs in the driver cannot be killed, so it is left alone until it returns.
    """

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._changed = threading.Condition()

    def start(self, name: str, call: Callable[[], None]) -> bool:
        """Start a call. Return False if one of that name is still in flight, or no thread can be started."""
        with self._changed:
            if name in self._in_flight:
                return False
            self._in_flight.add(name)
        try:
            threading.Thread(target=self._run, args=(name, call), name=name, daemon=True).start()
        except (RuntimeError, MemoryError):
            self._returned(name)
            return False
        return True

    def is_in_flight(self, name: str) -> bool:
        return name in self._in_flight

    @property
    def any_in_flight(self) -> bool:
        return bool(self._in_flight)

    def wait(self, names: Iterable[str], timeout: float) -> None:
        """Wait until all of these calls have returned, for at most `timeout` seconds in all."""
        awaited = set(names)
        with self._changed:
            self._changed.wait_for(lambda: not awaited & self._in_flight, timeout)

    def _run(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._returned(name)

    def _returned(self, name: str) -> None:
        with self._changed:
            self._in_flight.discard(name)
            self._changed.notify_all()


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
UNKNOWN = 999

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
    UNKNOWN: "unknown error",
}

SOURCE_CODES = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH})
"""Codes after which the library must be opened again, in a new process."""
DEVICE_CODES = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""Codes after which no call to this GPU can succeed."""
UNSUPPORTED_CODES = frozenset(
    # INVALID_ARGUMENT is an older driver's answer to a field id that it does not know.
    {INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, VGPU_ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED}
)
PERMANENT_CODES = UNSUPPORTED_CODES | {NO_PERMISSION}
"""Codes that stay the same while the library is open: a value with one of them is requested once, and then no more."""

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
    """An NVML call, or one field of a batch, returned a code other than success."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.call = call
        self.code = code

    def __str__(self) -> str:
        return f"{self.call}: {describe(self.code)}"


def describe(code: int) -> str:
    return f"{_TEXTS.get(code, 'NVML error')} ({code})"


def reason_of(code: int) -> Reason:
    """Return the reason of the gap for a reading whose call returned this code."""
    return _REASONS.get(code, Reason.MALFORMED)


class RefusableRows:
    """Rows of a GPU that one call gives; a call that the driver refuses permanently is made once."""

    def __init__(self, gpu: Gpu, *rows: Metric) -> None:
        self._gpu = gpu
        self._rows = rows
        self.refused: list[Gap] = []
        """Once there are any, the call is not made again."""

    def ask(self, call: Callable[[], Any], gaps: list[Gap]) -> Any:
        """Return the answer of a call; None, and a gap for each row, if it fails. Raises as `gaps`."""
        if not self.refused:
            try:
                return call()
            except DriverError as error:
                gaps += self.gaps(error)
                return None
        gaps += self.refused
        return None

    def gaps(self, error: DriverError, about: str = "") -> list[Gap]:
        """Return a gap for each row. Raises DeviceError or SourceError, as `escalate`."""
        escalate(error)
        gaps = [Gap(row, self._gpu, reason_of(error.code), f"{about}{error}") for row in self._rows]
        if error.code in PERMANENT_CODES:
            self.refused = gaps
        return gaps


def escalate(error: DriverError) -> None:
    """Raise DeviceError or SourceError if the code concerns the whole GPU or the whole library, not just this call."""
    escalate_source(error)
    if error.code in DEVICE_CODES:
        raise DeviceError(Reason.LOST, str(error)) from error


def escalate_source(error: DriverError) -> None:
    """Raise SourceError if the code concerns the whole library; for calls that do not read a GPU."""
    if error.code in SOURCE_CODES:
        raise SourceError(f"{error}; NVML must be opened again in a new process") from error
