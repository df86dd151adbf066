"""The faults that change only what is read: lost and silent GPUs, corrupted values, error counters.

The plausibility filter, the deadlines and the isolation of failures are outside a source; the values here are
deliberately raw, so that these have something to do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from agent.backends.protocol import DeviceError, SourceError
from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.model import Gap, Reading, Reason

SPOILING = frozenset({"missing", "sentinel", "counter-back"})
SENTINELS = {"nan": float("nan"), "inf": float("inf"), "huge": 1e19, "negative": -1.0}
GSP_TIMEOUT = "Timeout waiting for RPC from GSP"


class Gate:
    """Lets a read pass, raises the scenario's error, or blocks the read until the source is closed."""

    def __init__(self, scenario: Scenario, gpu: int | None, released: threading.Event) -> None:
        def of(kind: str) -> tuple[ScenarioFault, ...]:
            return tuple(f for f in scenario.faults if f.kind == kind and (gpu is None or gpu in f.gpus))

        self._unloaded = tuple(fault for fault in scenario.faults if fault.kind == "driver-unloaded")
        self._lost = of("lost") if gpu is not None else ()
        self._hangs = of("hang") if gpu is not None else ()
        self._released = released

    def check(self) -> None:
        """Refuse to answer after close()."""
        if self._released.is_set():
            raise SourceError("the synthetic source is closed")

    def source(self, t: float) -> None:
        """Raise SourceError while the driver is away."""
        self.check()
        if any(fault.window.holds(t) for fault in self._unloaded):
            raise SourceError("nvmlInit_v2: Driver Not Loaded (synthetic fault driver-unloaded)")

    def silence(self, t: float) -> DeviceError | None:
        """Why the device does not identify itself at `t`; None if it does. Never blocks."""
        if any(fault.window.holds(t) for fault in self._lost):
            return DeviceError(Reason.LOST, "nvmlDeviceGetHandleByIndex_v2: GPU is lost (synthetic fault lost)")
        if any(fault.window.holds(t) for fault in self._hangs):
            return DeviceError(
                Reason.TIMEOUT, "it does not answer when asked to identify itself (synthetic fault hang)"
            )
        return None

    def device(self, t: float) -> None:
        """Raise or block as this device's faults demand at `t`."""
        self.source(t)
        for fault in self._lost:
            if fault.window.holds(t):
                raise DeviceError(Reason.LOST, "nvmlDeviceGetFieldValues: GPU is lost (synthetic fault lost)")
        for fault in self._hangs:
            begun = fault.window.begun(t)
            if begun is not None:
                length = fault.window.duration
                self._released.wait(None if length is None else begun + length - t)
                raise DeviceError(Reason.TIMEOUT, f"nvmlDeviceGetFieldValues: {GSP_TIMEOUT} (synthetic fault hang)")


class Spoiler:
    """Removes values, or replaces them by impossible ones."""

    def __init__(self, scenario: Scenario, gpu: int | None = None, port: str = "") -> None:
        self._faults = tuple(
            fault
            for fault in scenario.faults
            if fault.kind in SPOILING and (gpu in fault.gpus if gpu is not None else fault.port == port)
        )

    def active(self, t: float) -> Sequence[ScenarioFault]:
        return [fault for fault in self._faults if fault.window.holds(t)] if self._faults else ()

    def readings(self, readings: Sequence[Reading], t: float) -> tuple[Sequence[Reading], list[Gap]]:
        """The readings that are left, and the gaps in place of the others."""
        gaps: list[Gap] = []
        for fault in self.active(t):
            readings = list(_spoilt(readings, fault, gaps))
        return readings, gaps


def _spoilt(readings: Sequence[Reading], fault: ScenarioFault, gaps: list[Gap]) -> Iterator[Reading]:
    metric = fault.options["metric"]
    for reading in readings:
        series, value = reading
        if series.metric.name != metric:
            yield reading
        elif fault.kind == "missing":
            detail = f"synthetic fault missing: {metric}"
            gap = Gap(series.metric, series.entity, Reason(fault.options["reason"]), detail)
            if gap not in gaps:
                gaps.append(gap)
        elif fault.kind == "sentinel":
            yield Reading(series, SENTINELS[fault.options["value"]])
        else:
            yield Reading(series, value - fault.parameters["by"])


class Tally:
    """Error counts of one device in closed form: some at each onset of a fault, and a rate while it lasts."""

    def __init__(self, faults: Sequence[ScenarioFault], rate: str, burst: str) -> None:
        self._terms = tuple(
            (fault.window, fault.parameters.get(rate, 0.0), fault.parameters.get(burst, 0.0)) for fault in faults
        )

    def at(self, t: float) -> float:
        total = 0.0
        for window, rate, burst in self._terms:
            total += window.elapsed(t) * rate + window.started(t) * burst
        return total // 1.0
