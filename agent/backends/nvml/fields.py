"""One lane's NVML fields and GPM metrics of one GPU: a single driver call for each, through one preallocated array.

The call for the fields succeeds even if single fields failed, so each field's own return code decides: a field that
fails affects only itself, unless its code says that the GPU or the driver is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.backends.nvml.arrays import FieldArray, GpmArray, ScaledColumns, Slot, SlotError, highest_of, sum_of
from agent.backends.nvml.calls import CodeTable, factors
from agent.backends.nvml.driver import NOT_SUPPORTED, Driver, DriverError, GpuHandle, escalate, reason_of
from agent.catalogue.bindings import Field, Gpm
from agent.lib.layout_columns import picker
from agent.model import Entity, Gap, Instant, Metric, Reading, Reason, Series

Pair = tuple[int, int]
"""Field id and scope id."""

GET = "nvmlDeviceGetFieldValues"

Combine = Callable[[Sequence[Slot]], Slot]
"""Makes one number of those of several links, or returns the fault that prevents it."""
_Numbers = tuple[Callable[[Sequence[Slot]], tuple[Slot, ...]], ScaledColumns]
"""Picks the numbers out of a lane's slots, and makes readings of them."""


class FieldBatch:
    """The fields of a lane, and the readings made from them."""

    def __init__(self) -> None:
        self._slots: dict[Pair, int] = {}
        self._values: list[tuple[int, float, float, Series]] = []
        self._columns: _Numbers | None = None
        self._codes: list[tuple[int, CodeTable, Metric, Entity]] = []
        self._combined: list[tuple[tuple[int, ...], Combine, float, float, Series]] = []
        self._array: FieldArray | None = None

    def __bool__(self) -> bool:
        return bool(self._slots)

    def _slot(self, pair: Pair) -> int:
        self._array = None
        return self._slots.setdefault(pair, len(self._slots))

    def add(self, pair: Pair, binding: Field, series: Series) -> None:
        self._columns = None
        self._values.append((self._slot(pair), *factors(binding.scale), series))

    def add_codes(self, pair: Pair, table: CodeTable, metric: Metric, entity: Entity) -> None:
        self._codes.append((self._slot(pair), table, metric, entity))

    def add_combined(self, pairs: Sequence[Pair], binding: Field, series: Series) -> None:
        """Add the sum of a field of these links, or the highest of its packed ratios."""
        combine = highest_of if binding.packed else sum_of
        self._combined.append((tuple(map(self._slot, pairs)), combine, *factors(binding.scale), series))

    def read(self, device: GpuHandle, readings: list[Reading], gaps: list[Gap]) -> None:
        """Fetch all fields. Raises DeviceError or SourceError; any other failure affects only its own readings."""
        if self._array is None:
            self._array = FieldArray(tuple(self._slots))
        try:
            device.call(GET, self._array)
        except DriverError as error:
            escalate(error)
            slots: Sequence[Slot] = [SlotError(reason_of(error.code), str(error))] * self._array.count
        else:
            slots = self._array.decode()
        pick, columns = self._columns or self._lay_out()
        for place, fault in columns.read(pick(slots), readings):
            slot, _, _, series = self._values[place]
            gaps.append(self._gap(slot, fault, series.metric, series.entity))
        if self._codes:
            self._read_codes(slots, readings, gaps)
        if self._combined:
            self._read_combined(slots, readings, gaps)

    def _lay_out(self) -> _Numbers:
        self._columns = (picker([slot for slot, *_ in self._values]), ScaledColumns([row[1:] for row in self._values]))
        return self._columns

    def _read_codes(self, slots: Sequence[Slot], readings: list[Reading], gaps: list[Gap]) -> None:
        for slot, table, metric, entity in self._codes:
            value = slots[slot]
            if isinstance(value, SlotError):
                gaps.append(self._gap(slot, value, metric, entity))
            elif (known := table.get(int(value))) is not None:
                readings.extend(known)
            else:
                fault = SlotError(Reason.MALFORMED, f"code {int(value)} is unknown to this version")
                gaps.append(self._gap(slot, fault, metric, entity))

    def _read_combined(self, slots: Sequence[Slot], readings: list[Reading], gaps: list[Gap]) -> None:
        for parts, combine, multiplier, divisor, series in self._combined:
            value = combine([slots[slot] for slot in parts])
            if isinstance(value, SlotError):
                gaps.append(self._gap(parts[0], value, series.metric, series.entity))
            else:
                readings.append(Reading(series, value * multiplier / divisor))

    def _gap(self, slot: int, fault: SlotError, metric: Metric, entity: Entity) -> Gap:
        field, _ = list(self._slots)[slot]
        name = f"NVML field {field}"
        if fault.code:
            escalate(DriverError(name, fault.code))
        return Gap(metric, entity, fault.reason, f"{name}: {fault.text}")


def fetch(device: GpuHandle, pairs: Sequence[Pair]) -> dict[Pair, Slot]:
    """Return each pair's value or fault, for probing: if the driver refuses the batch, it is asked for halves of it."""
    if not pairs:
        return {}
    array = FieldArray(pairs)
    try:
        device.call(GET, array)
    except DriverError as error:
        escalate(error)
        if len(pairs) == 1:
            return {pairs[0]: SlotError(reason_of(error.code), str(error), error.code)}
        half = len(pairs) // 2
        return fetch(device, pairs[:half]) | fetch(device, pairs[half:])
    slots = array.decode()
    for (field, _), slot in zip(pairs, slots, strict=True):
        if isinstance(slot, SlotError) and slot.code:
            escalate(DriverError(f"NVML field {field}", slot.code))
    return dict(zip(pairs, slots, strict=True))


INTERVAL_SECONDS = 0.11
"""Seconds between two samples: the documented 100 ms and a tenth more."""


class GpmSampler:
    """GPU performance monitoring (Hopper and newer): the mean of an interval between two samples of one GPU, or of a
    GPU instance (MIG) of it.

    One driver call per read takes a sample; the arithmetic between it and the one before is done in the library without
    the device. The device refreshes its counters about every 100 ms and gives zeroes for a shorter interval (NVML
    reference, nvmlGpmSampleGet), so a quicker lane keeps the newest mean until the next interval is long enough.

    Owns two sample buffers of the library, exchanged on each use.
    """

    def __init__(self, driver: Driver, instance: int | None = None) -> None:
        """`instance` is the id of a GPU instance; None samples the whole GPU."""
        self._driver = driver
        self._call = "nvmlGpmSampleGet" if instance is None else "nvmlGpmMigSampleGet"
        self._args = () if instance is None else (instance,)
        self._wants: list[tuple[int, float, float, Series]] = []
        self._totals: dict[int, float] = {}
        """For each place in `_wants` of which the device gives the growth per second, the sum so far, unscaled."""
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

    @property
    def interrupted(self) -> bool:
        """Whether the newest sample could not be taken, or none was yet."""
        return self._at is None

    def add(self, binding: Gpm, series: Series) -> None:
        if binding.total:
            self._totals[len(self._wants)] = 0.0
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
        self._sample(device)

    def read(self, device: GpuHandle, now: Instant, readings: list[Reading], gaps: list[Gap]) -> None:
        """Read the newest means; nothing before the second sample. Raises DeviceError or SourceError."""
        if self._at is None or now.mono - self._at >= INTERVAL_SECONDS:
            self._shown = self._advance(device, now)
        readings.extend(self._shown[0])
        gaps.extend(self._shown[1])

    def _sample(self, device: GpuHandle) -> None:
        device.call(self._call, *self._args, self._spare)

    def _advance(self, device: GpuHandle, now: Instant) -> tuple[list[Reading], list[Gap]]:
        before = self._at
        # Until this sample is good there is no start of an interval: counters restart when a GPU is reset.
        self._at = None
        try:
            self._sample(device)
            self._older, self._spare = self._spare, self._older
            self._at = now.mono
            return ([], []) if before is None else self._compute(now.mono - before)
        except DriverError as error:
            escalate(error)
            reason = reason_of(error.code)
            return [], [Gap(series.metric, series.entity, reason, str(error)) for _, _, _, series in self._wants]

    def _compute(self, seconds: float) -> tuple[list[Reading], list[Gap]]:
        # After the exchange the newest sample is `_older`, the start of the next interval.
        if self._array is None:
            self._array = GpmArray([metric for metric, _, _, _ in self._wants])
            self._columns = ScaledColumns([row[1:] for row in self._wants])
        self._driver.call("nvmlGpmMetricsGet", self._array.between(self._spare or 0, self._older or 0))
        values = self._add_up(self._array.decode(), seconds)
        readings: list[Reading] = []
        gaps: list[Gap] = []
        for place, error in self._columns.read(values, readings):
            metric, _, _, series = self._wants[place]
            gaps.append(Gap(series.metric, series.entity, error.reason, f"GPM metric {metric}: {error.text}"))
        return readings, gaps

    def _add_up(self, rates: Sequence[Slot], seconds: float) -> Sequence[Slot]:
        """Replace each growth per second by the sum so far. What grew in an interval without a sample is not in it."""
        values = list(rates)
        for place, total in self._totals.items():
            rate = values[place]
            if not isinstance(rate, SlotError):
                values[place] = self._totals[place] = total + rate * seconds
        return values

    def close(self) -> None:
        """Return the buffers to the library; may be called more than once."""
        samples = (self._older, self._spare)
        self._older = self._spare = self._at = None
        for sample in samples:
            if sample is not None:
                self._driver.call("nvmlGpmSampleFree", sample)
