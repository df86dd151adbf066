"""Makes the readings of one lane of one GPU out of slots: what its fields, its calls and GPM gave.

Each of these is a source, read with one driver call, and only here is said which slots make which readings. Most are
one number that is multiplied by a factor: all of a lane are scaled together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mul, truediv
from typing import NamedTuple, Protocol

from agent.backends.nvml.arrays import Slot, SlotError
from agent.backends.nvml.driver import GpuHandle
from agent.lib.layout_columns import picker
from agent.model import Entity, Gap, Instant, Metric, Reading, Reason, Series, readings_of

NOT_YET = SlotError(Reason.TIMEOUT, "")
"""The slot of a value that needs another sample: it is no gap."""

Combine = Callable[[Sequence[Slot]], Slot]
"""Makes one number of those of several links, or returns the error that prevents it."""
Decode = Callable[[int], Iterable[Reading] | None]
"""Makes readings of a code or a mask; None for one that this version does not know."""


class SlotSource(Protocol):
    """What is read with one driver call."""

    def fetch(self, device: GpuHandle, now: Instant) -> Sequence[Slot]:
        """Return a slot for each value. Raises DeviceError or SourceError; any other failure is in the slots."""


class Number(NamedTuple):
    """A slot of a source, or what `combine` makes of several, times `scale`: the value of a series.

    `name` is what a gap calls the slot.
    """

    source: SlotSource
    places: Sequence[int]
    name: str
    scale: float
    series: Series
    combine: Combine | None = None


class Code(NamedTuple):
    """A slot of a source of which `decode` makes readings of a metric."""

    source: SlotSource
    place: int
    name: str
    metric: Metric
    entity: Entity
    decode: Decode


class LaneReader:
    """Reads the sources of a lane, in their order. `gaps` are what the GPU does not offer."""

    def __init__(self) -> None:
        self.sources: list[SlotSource] = []
        self.gaps: tuple[Gap, ...] = ()
        self._values: list[Number | Code] = []
        self._columns: _SlotColumns | None = None

    def add_value(self, value: Number | Code) -> None:
        """Read this value from now on, and its source."""
        if value.source not in self.sources:
            self.sources.append(value.source)
        self._values.append(value)

    def move(self, source: SlotSource, other: LaneReader) -> None:
        """Let another lane read a source, and the values in it."""
        for value in [v for v in self._values if v.source is source]:
            self._values.remove(value)
            other.add_value(value)
        self.sources.remove(source)

    def read(self, device: GpuHandle, now: Instant, readings: list[Reading], gaps: list[Gap]) -> None:
        """Read everything. Raises DeviceError or SourceError; any other failure affects only its own readings."""
        slots: list[Slot] = []
        starts = {}
        for source in self.sources:
            starts[source] = len(slots)
            slots += source.fetch(device, now)
        if self._columns is None:
            self._columns = _SlotColumns(self._values, starts, len(slots))
            self._values.clear()  # they take 50 KiB for each GPU
        self._columns.read(slots, readings, gaps)


class _SlotColumns:
    """The values of a lane in columns. Its slots are those of the sources, from `starts` on, then the combined."""

    def __init__(self, values: Sequence[Number | Code], starts: Mapping[SlotSource, int], count: int) -> None:
        numbers = [v for v in values if isinstance(v, Number)]
        self._codes = [(starts[v.source] + v.place, v) for v in values if isinstance(v, Code)]
        # 57 / 100 is 0.57, and 57 * 0.01 is not.
        scales = [n.scale for n in numbers]
        self._multipliers = [max(scale, 1.0) for scale in scales]
        self._divisors = [1.0 if scale >= 1.0 else float(round(1.0 / scale)) for scale in scales]
        self._series = [n.series for n in numbers]
        self._names = [n.name for n in numbers]
        self._combined: list[tuple[Callable[[Sequence[Slot]], tuple[Slot, ...]], Combine]] = []
        chosen = []
        for number in numbers:
            places = [starts[number.source] + place for place in number.places]
            if number.combine is not None:
                self._combined.append((picker(places), number.combine))
                places = [count + len(self._combined) - 1]
            chosen += places
        self._pick = picker(chosen)

    def read(self, slots: list[Slot], readings: list[Reading], gaps: list[Gap]) -> None:
        slots += [combine(pick(slots)) for pick, combine in self._combined]
        self._read_numbers(self._pick(slots), readings, gaps)
        for place, (_, _, name, metric, entity, decode) in self._codes:
            slot = slots[place]
            if isinstance(slot, SlotError):
                gaps.append(Gap(metric, entity, slot.reason, f"{name}: {slot.text}"))
                continue
            decoded = decode(int(slot))
            if decoded is not None:
                readings += decoded
            else:
                detail = f"{name}: code {int(slot)} is unknown to this version"
                gaps.append(Gap(metric, entity, Reason.MALFORMED, detail))

    def _read_numbers(self, numbers: Sequence[Slot], readings: list[Reading], gaps: list[Gap]) -> None:
        if SlotError not in map(type, numbers):  # nearly always
            scaled = map(truediv, map(mul, numbers, self._multipliers), self._divisors)
            readings += readings_of(self._series, scaled)
            return
        rows = zip(numbers, self._multipliers, self._divisors, self._series, self._names, strict=True)
        for slot, multiplier, divisor, series, name in rows:
            if not isinstance(slot, SlotError):
                readings.append(Reading(series, slot * multiplier / divisor))
            elif slot is not NOT_YET:
                gaps.append(Gap(series.metric, series.entity, slot.reason, f"{name}: {slot.text}"))
