"""How the devices of a node are opened, in the device worker.

A family of devices is a package in `agent/backends/` whose name is a value of the key `backends.devices`. It has
`make_source(options)`, which returns an implementation of `DeviceSource`, and only the worker imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from agent.backends.protocol import DeviceSource


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a family is opened with.

    `scenario` and `epoch`, the monotonic second at which it began, are for synthetic devices. `wall` gives seconds
    since the epoch. `trace` is the file of driver calls to play in place of NVML's library; empty for the library.
    """

    scenario: str
    epoch: float
    wall: Callable[[], float]
    trace: str = ""


def make_device_source(family: str, options: SourceOptions) -> DeviceSource:
    """Return the devices of that family, not opened yet. Raises ImportError for one that is not there."""
    source: DeviceSource = import_module(f"agent.backends.{family}").make_source(options)
    return source
