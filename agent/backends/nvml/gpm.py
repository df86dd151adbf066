"""GPU performance monitoring (Hopper and newer): the mean of an interval between two samples.

One driver call per read takes a sample; the arithmetic between it and the one before is done in the
library without the device. The device refreshes its counters about every 100 ms and gives zeroes for
a shorter interval (NVML reference, nvmlGpmSampleGet), so a quicker lane keeps the newest mean until
the next interval is long enough.
"""

from __future__ import annotations

from agent.backends.nvml.arrays import GpmArray, SlotFault
from agent.backends.nvml.calls import factors
from agent.backends.nvml.driver import Driver, GpuHandle
from agent.backends.nvml.return_codes import NOT_SUPPORTED, DriverError, escalate, reason_of
from agent.backends.nvml.scaled_columns import ScaledColumns
from agent.catalogue.bindings import Gpm
from agent.model import Gap, Instant, Reading, Series

INTERVAL_SECONDS = 0.11
"""Seconds between two samples: the documented 100 ms and a tenth more."""


class GpmSampler:
    """The GPM rows of one GPU. Owns two sample buffers of the library, exchanged on each use."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._wants: list[tuple[int, float, float, Series]] = []
        self._array: GpmArray | None = None
        self._columns = ScaledColumns(())
        self._older: int | None = None
        self._spare: int | None = None
        self._at: float | None = None
        self._shown: tuple[list[Reading], list[Gap]] = ([], [])

    def __bool__(self) -> bool:
        return bool(self._wants)

    @property
    def ready(self) -> bool:
        """Whether both sample buffers were allocated."""
        return self._older is not None and self._spare is not None

    def add(self, binding: Gpm, series: Series) -> None:
        self._wants.append((binding.id, *factors(binding.scale), series))

    def probe(self, device: GpuHandle) -> None:
        """Allocate the buffers and take a trial sample. Raises DriverError if GPM is not available."""
        supported = device.call("nvmlGpmQueryDeviceSupport")
        if not supported:
            raise DriverError("nvmlGpmQueryDeviceSupport", NOT_SUPPORTED)
        if self._older is None:
            self._older = self._driver.call("nvmlGpmSampleAlloc")
        if self._spare is None:
            self._spare = self._driver.call("nvmlGpmSampleAlloc")
        device.call("nvmlGpmSampleGet", self._spare)

    def read(self, device: GpuHandle, now: Instant, readings: list[Reading], gaps: list[Gap]) -> None:
        """The newest means; nothing before the second sample. Raises DeviceError or SourceError."""
        if self._at is None or now.mono - self._at >= INTERVAL_SECONDS:
            self._shown = self._advance(device, now)
        readings.extend(self._shown[0])
        gaps.extend(self._shown[1])

    def _advance(self, device: GpuHandle, now: Instant) -> tuple[list[Reading], list[Gap]]:
        first = self._at is None
        # Until this sample is good there is no start of an interval: counters restart when a GPU is reset.
        self._at = None
        try:
            device.call("nvmlGpmSampleGet", self._spare)
            self._older, self._spare = self._spare, self._older
            self._at = now.mono
            return ([], []) if first else self._compute()
        except DriverError as error:
            escalate(error)
            reason = reason_of(error.code)
            return [], [Gap(series.metric, series.entity, reason, str(error)) for _, _, _, series in self._wants]

    def _compute(self) -> tuple[list[Reading], list[Gap]]:
        # After the exchange the newest sample is `_older`, the start of the next interval.
        if self._array is None:
            self._array = GpmArray([metric for metric, _, _, _ in self._wants])
            self._columns = ScaledColumns([row[1:] for row in self._wants])
        self._driver.call("nvmlGpmMetricsGet", self._array.between(self._spare or 0, self._older or 0))
        values = self._array.decode()
        good = self._columns.readings(values)
        if good is not None:
            return list(good), []
        readings: list[Reading] = []
        gaps: list[Gap] = []
        for value, (metric, multiplier, divisor, series) in zip(values, self._wants, strict=True):
            if isinstance(value, SlotFault):
                gaps.append(Gap(series.metric, series.entity, value.reason, f"GPM metric {metric}: {value.text}"))
            else:
                readings.append(Reading(series, value * multiplier / divisor))
        return readings, gaps

    def close(self) -> None:
        """Return the buffers to the library; may be called more than once."""
        samples = (self._older, self._spare)
        self._older = self._spare = self._at = None
        for sample in samples:
            if sample is not None:
                self._driver.call("nvmlGpmSampleFree", sample)
