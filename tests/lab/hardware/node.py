"""One opened NVML source, read by hand lane by lane, and the laws that every sample must keep."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agent.backends.nvml import NvmlSource
from agent.backends.nvml.channel import NvmlGpuChannel
from agent.backends.nvml.driver import Driver
from agent.backends.nvml.trace import HANDLES
from agent.backends.protocol import BackendSample
from agent.model import GpuIdentity, Instant, Lane

LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)
FAST_CALLS = 7
"""Most device calls of a fast sample, as docs/dev/performance.md promises."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and the series' own labels; a link's number counts as one."""


class Node:
    """The GPUs of this machine. Raises AbsentError or SourceError when they cannot be opened."""

    def __init__(self, driver: Driver | None, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self.source = NvmlSource(driver, wall=lambda: clock().wall)
        self.channels: Sequence[NvmlGpuChannel] = self.source.open(clock())
        self.identities: list[GpuIdentity] = [each.identity for each in self.channels if each.identity is not None]

    def read(self, gpu: int, lane: Lane) -> BackendSample:
        return self.channels[gpu].read(lane, self._clock())

    def close(self) -> None:
        self.source.close()


def values_of(sample: BackendSample) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for reading in sample.readings:
        link = getattr(reading.entity, "link", None)
        labels = reading.labels if link is None else (("link", str(link)), *reading.labels)
        found[reading.metric.name, labels] = reading.value
    return found


def reasons_of(sample: BackendSample) -> dict[str, str]:
    return {gap.metric.name: f"{gap.reason.value}: {gap.detail}" for gap in sample.gaps}


def violations(sample: BackendSample, lane: Lane) -> list[str]:
    """What is wrong with a sample by itself: values out of range, or a fast sample that costs too many calls."""
    found = []
    for reading in sample.readings:
        low, high = reading.metric.span
        if not low <= reading.value <= high:
            found.append(f"{reading.series!r} is {reading.value!r}, outside {low:g} to {high:g}")
    if lane is Lane.FAST and sample.calls > FAST_CALLS:
        found.append(f"a fast sample made {sample.calls} device calls, more than {FAST_CALLS}")
    return found


def families(samples: Sequence[BackendSample]) -> list[str]:
    return sorted({reading.metric.name for sample in samples for reading in sample.readings})


class Timed(NamedTuple):
    """One driver call. `place` is what the reader was doing: a lane of a GPU, or nothing."""

    name: str
    place: tuple[str, str]
    seconds: float
    on_device: bool


class TimedDriver:
    """Times the calls of the driver below it, a few microseconds of Python included. Set `place` before reading."""

    def __init__(self, inner: Driver, clock: Callable[[], float]) -> None:
        self._inner, self._clock = inner, clock
        self._handles: list[Any] = []
        self.place = ("", "")
        self.calls: list[Timed] = []

    def call(self, name: str, *args: Any) -> Any:
        on_device = bool(args) and args[0] in self._handles
        began = self._clock()
        try:
            answer = self._inner.call(name, *args)
        finally:
            self.calls.append(Timed(name, self.place, self._clock() - began, on_device))
        if name in HANDLES and answer not in self._handles:
            self._handles.append(answer)
        return answer
