"""One lane's NVML fields and GPM metrics of one GPU: a single driver call for each, through one preallocated array.

The call for the fields succeeds even if single fields failed, so each field's own return code decides: a field that
fails affects only itself, unless its code says that the GPU or the driver is gone.
"""

from collections.abc import Sequence

from agent.backends.nvml.arrays import FieldArray, GpmArray, Slot, SlotError
from agent.backends.nvml.driver import NOT_SUPPORTED, Driver, DriverError, GpuHandle, escalate, reason_of
from agent.backends.nvml.lane_reader import NOT_YET, Number
from agent.catalogue.bindings import Gpm
from agent.model import Instant, Series

Pair = tuple[int, int]
"""Field id and scope id."""

GET = "nvmlDeviceGetFieldValues"


class FieldBatch:
    """The fields of a lane."""

    def __init__(self) -> None:
        self._places: dict[Pair, int] = {}
        self._array: FieldArray | None = None

    def place(self, pair: Pair) -> int:
        """Return the place of a field, which is fetched from now on."""
        return self._places.setdefault(pair, len(self._places))

    def fetch(self, device: GpuHandle, _: Instant) -> Sequence[Slot]:
        if self._array is None:
            self._array = FieldArray(tuple(self._places))
        try:
            device.call(GET, self._array)
        except DriverError as error:
            escalate(error)
            return [SlotError(reason_of(error.code), str(error))] * self._array.count
        return self._array.decode()


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
    return dict(zip(pairs, array.decode(), strict=True))


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
        self._metrics: list[int] = []
        self._totals: dict[int, float] = {}
        """For each place in `_metrics` of which the device gives the growth per second, the sum so far, unscaled."""
        self._array: GpmArray | None = None
        self._older: int | None = None
        self._spare: int | None = None
        self._at: float | None = None
        self._newest: Sequence[Slot] = ()

    @property
    def ready(self) -> bool:
        """Whether both sample buffers were allocated."""
        return self._older is not None and self._spare is not None

    @property
    def interrupted(self) -> bool:
        """Whether the newest sample could not be taken, or none was yet."""
        return self._at is None

    def number(self, binding: Gpm, series: Series) -> Number:
        """Return a metric, which is computed from now on, as the value of a series."""
        place = len(self._metrics)
        self._metrics.append(binding.id)
        if binding.total:
            self._totals[place] = 0.0
        return Number(self, [place], str(binding), binding.scale, series)

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

    def fetch(self, device: GpuHandle, now: Instant) -> Sequence[Slot]:
        """Return the newest means; none before the second sample."""
        if self._at is None or now.mono - self._at >= INTERVAL_SECONDS:
            try:
                self._newest = self._advance(device, now)
            except DriverError as error:
                escalate(error)
                self._newest = [SlotError(reason_of(error.code), str(error))] * len(self._metrics)
        return self._newest

    def _sample(self, device: GpuHandle) -> None:
        device.call(self._call, *self._args, self._spare)

    def _advance(self, device: GpuHandle, now: Instant) -> Sequence[Slot]:
        before = self._at
        # Until this sample is good there is no start of an interval: counters restart when a GPU is reset.
        self._at = None
        self._sample(device)
        # The newest sample is `_older` from now on, the start of the next interval.
        self._older, self._spare = self._spare, self._older
        self._at = now.mono
        if before is None:
            return [NOT_YET] * len(self._metrics)
        if self._array is None:
            self._array = GpmArray(self._metrics)
        self._driver.call("nvmlGpmMetricsGet", self._array.between(self._spare or 0, self._older or 0))
        return self._add_up(self._array.decode(), now.mono - before)

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
