"""The low seam of the NVML backend: one method through which every driver call goes.

A test, or a recording made on a real machine, replaces the library by a table from a call's name and
arguments to a value or an error code. Nothing above this seam imports pynvml.
"""

from __future__ import annotations

from typing import Any, Protocol


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
