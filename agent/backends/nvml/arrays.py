"""The two C arrays that NVML fills, allocated once and decoded without ctypes field access, and the numbers in them.

nvidia-ml-py builds a fresh array on every call and reads each member through a Python
`__getattribute__`; at ten samples a second on eight GPUs that costs more than the driver call. The
layouts are those of `nvmlFieldValue_t` and `nvmlGpmMetricsGet_t` on 64-bit Linux, the only platform.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from operator import eq
from typing import Any, NamedTuple

from agent.backends.nvml.driver import DriverError, describe, escalate, reason_of
from agent.model import Reason

U32_ONES = 2**32 - 1
U64_ONES = 2**64 - 1
SENTINELS = frozenset({U32_ONES, U64_ONES})
"""NVML_VALUE_NOT_AVAILABLE in either width: a number that means that there is no value."""


class SlotError(NamedTuple):
    """A slot that holds no value, and why. `code` is 0 when the call itself succeeded."""

    reason: Reason
    text: str
    code: int = 0


@lru_cache(maxsize=128)  # a failing field fails in every sample
def slot_error(code: int) -> SlotError:
    """Return the fault for a return code."""
    return SlotError(reason_of(code), describe(code), code)


Slot = int | float | SlotError

_NOT_FINITE = SlotError(Reason.MALFORMED, "the answer is not a finite number")


class FieldArray:
    """An array of `nvmlFieldValue_t`, prepared with field and scope ids.

    struct { u32 fieldId, scopeId; i64 timestamp, latencyUsec; u32 valueType, nvmlReturn; union value; }
    """

    RECORD = 40
    _WORDS = RECORD // 4

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs = tuple(pairs)
        self.count = len(self.pairs)
        self.buffer = (ctypes.c_char * (self.RECORD * self.count))()
        raw = memoryview(self.buffer).cast("B")
        self._u32 = raw.cast("I")
        u64, i64, i32 = raw.cast("Q"), raw.cast("q"), raw.cast("i")
        # By valueType: view, items in a record, item that holds the value, the all-ones sentinel.
        self._views = (
            (raw.cast("d"), 5, 4, None),
            (self._u32, 10, 8, U32_ONES),
            (u64, 5, 4, U64_ONES),
            (u64, 5, 4, U64_ONES),
            (i64, 5, 4, None),
            (i32, 10, 8, None),
            (raw.cast("H"), 20, 16, 0xFFFF),
        )
        self._kinds: list[int] = []
        self._places: list[tuple[Any, int]] = []
        self._ones: list[int | None] = []
        for i, (field, scope) in enumerate(self.pairs):
            self._u32[i * self._WORDS] = field
            self._u32[i * self._WORDS + 1] = scope

    def stored(self, index: int) -> tuple[int, int, int | float]:
        """Return what the library wrote into a record: its return code, the type of the value, and the value."""
        kind, code = self._u32[index * self._WORDS + 6], self._u32[index * self._WORDS + 7]
        view, items, offset, _ = self._view(kind)
        return code, kind, view[index * items + offset]

    def store(self, index: int, code: int, kind: int, value: float) -> None:
        """Write one record, as the library does; for a driver that is not the library."""
        self._u32[index * self._WORDS + 6], self._u32[index * self._WORDS + 7] = kind, code
        view, items, offset, _ = self._view(kind)
        view[index * items + offset] = value

    def _view(self, kind: int) -> tuple[Any, int, int, int | None]:
        """Return where values of a type are; one of a type that is not known here is passed on as a u64."""
        return self._views[kind if kind < len(self._views) else 2]

    def decode(self) -> Sequence[Slot]:
        """Return the value of each slot, or its error: all at once if they are good and of the usual types.

        Raises DeviceError or SourceError if the code of a field says that the GPU or the driver is gone.
        """
        words = self._u32.tolist()
        kinds = words[6::10]
        if kinds == self._kinds and not any(words[7::10]):
            values = [view[place] for view, place in self._places]
            if not any(map(eq, values, self._ones)) and all(map(math.isfinite, values)):
                return values
        slots = self._decode_each(words)
        if not any(isinstance(slot, SlotError) for slot in slots):
            self._learn(kinds)
        return slots

    def _learn(self, kinds: list[int]) -> None:
        """Remember where values of these types are, and which number of each type means that there is no value."""
        views = [self._views[kind] for kind in kinds]
        self._kinds = kinds
        self._places = [(view, i * items + offset) for i, (view, items, offset, _) in enumerate(views)]
        self._ones = [ones for _, _, _, ones in views]

    def _decode_each(self, words: list[int]) -> list[Slot]:
        views = self._views
        kinds = len(views)
        slots: list[Slot] = []
        for i in range(self.count):
            code = words[i * 10 + 7]
            kind = words[i * 10 + 6]
            if code:
                escalate(DriverError(f"NVML field {self.pairs[i][0]}", code))
                slots.append(slot_error(code))
            elif kind >= kinds:
                slots.append(SlotError(Reason.MALFORMED, f"unknown value type {kind}"))
            else:
                view, items, offset, ones = views[kind]
                value = view[i * items + offset]
                if value == ones:
                    slots.append(SlotError(Reason.IMPLAUSIBLE, f"{value:#x} means no value"))
                elif kind or math.isfinite(value):
                    slots.append(value)
                else:
                    slots.append(_NOT_FINITE)
        return slots


class GpmArray:
    """An `nvmlGpmMetricsGet_t`, prepared with metric ids; its two samples are exchanged on each use.

    struct { u32 version, numMetrics; void *sample1, *sample2;
             struct { u32 metricId, nvmlReturn; double value; char *shortName, *longName, *unit; } metrics[]; }
    """

    METRIC_MAX = 477  # NVML_GPM_METRIC_MAX of nvidia-ml-py 13.615: the whole struct, whatever a library copies
    _HEAD = 24
    _RECORD = 40

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = tuple(ids)
        self.buffer = (ctypes.c_char * (self._HEAD + self._RECORD * self.METRIC_MAX))()
        raw = memoryview(self.buffer).cast("B")
        self._u32, self._u64, self._f64 = raw.cast("I"), raw.cast("Q"), raw.cast("d")
        self._u32[0] = 1  # NVML_GPM_METRICS_GET_VERSION
        self._u32[1] = len(self.ids)
        for i, metric in enumerate(self.ids):
            self._u32[6 + i * 10] = metric

    def between(self, earlier: int, later: int) -> GpmArray:
        self._u64[1] = earlier
        self._u64[2] = later
        return self

    @property
    def later(self) -> int:
        """The address of the later sample."""
        return int(self._u64[2])

    def store(self, index: int, code: int, value: float) -> None:
        """Write one result, as the library does; for a driver that is not the library."""
        self._u32[6 + index * 10 + 1] = code
        self._f64[3 + index * 5 + 1] = value

    def stored(self) -> tuple[Sequence[int], Sequence[float]]:
        """Return the return code and the value of each metric."""
        count = len(self.ids)
        return self._u32[7 : 7 + 10 * count : 10].tolist(), self._f64[4 : 4 + 5 * count : 5].tolist()

    def decode(self) -> Sequence[Slot]:
        """Return the value of each metric, or its error."""
        codes, values = self.stored()
        if not any(codes) and all(map(math.isfinite, values)):
            return values
        return [
            slot_error(code) if code else value if math.isfinite(value) else _NOT_FINITE
            for code, value in zip(codes, values, strict=True)
        ]


_RATIO_BITS = 12
"""Four of the mantissa, above the eight of the exponent (NVML_NVLINK_ERROR_COUNTER_BER_GET; DCGM decodes them so)."""
_RATIO_EXPONENT = 0xFF
"""The mask of the exponent. With all its bits set, as in 15e-255, it stands for a link without errors."""


def ratio_in(slot: Slot) -> float | SlotError:
    """Return the bit error ratio in a slot: NVLink 5 packs a mantissa and the power of ten that divides it."""
    if isinstance(slot, SlotError):
        return slot
    packed = int(slot)
    if packed != slot or packed < 0 or packed >> _RATIO_BITS:
        return SlotError(Reason.MALFORMED, f"{slot} is no packed ratio of {_RATIO_BITS} bits")
    exponent = packed & _RATIO_EXPONENT
    return 0.0 if exponent == _RATIO_EXPONENT else float(f"{packed >> 8}e-{exponent}")


def sum_of(slots: Sequence[Slot]) -> Slot:
    """Return the sum of the numbers in the slots, or why the first that has none has none."""
    total: int | float = 0
    for slot in slots:
        if isinstance(slot, SlotError):
            return slot
        total += slot
    return total


def highest_of(slots: Sequence[Slot]) -> float | SlotError:
    """Return the highest ratio of the slots that have one (a link that is down has none), or why the first has none."""
    ratios = [ratio_in(slot) for slot in slots]
    known = [ratio for ratio in ratios if not isinstance(ratio, SlotError)]
    return max(known) if known else ratios[0]
