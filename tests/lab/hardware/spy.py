"""A driver that times the calls of the one below it, and knows which of them went to a device.

The time is that of the call through the binding, so a few microseconds of each are Python's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from agent.backends.nvml.driver import Driver
from agent.backends.nvml.trace import HANDLES


class Timed(NamedTuple):
    """One call. `place` is what the reader was doing: a lane of a GPU, or nothing."""

    name: str
    place: tuple[str, str]
    seconds: float
    on_device: bool


class TimedDriver:
    """Implements `Driver`. Set `place` before reading."""

    def __init__(self, inner: Driver, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._clock = clock
        self._lock = threading.Lock()
        self._handles: set[Any] = set()
        self.place = ("", "")
        self.calls: list[Timed] = []

    def call(self, name: str, *args: Any) -> Any:
        on_device = bool(args) and _known(args[0], self._handles)
        began = self._clock()
        try:
            answer = self._inner.call(name, *args)
        finally:
            took = self._clock() - began
            with self._lock:
                self.calls.append(Timed(name, self.place, took, on_device))
        if name in HANDLES:
            with self._lock:
                self._handles.add(answer)
        return answer


def _known(value: object, handles: set[Any]) -> bool:
    try:
        return value in handles
    except TypeError:  # an event set of pynvml's cannot be hashed
        return False
