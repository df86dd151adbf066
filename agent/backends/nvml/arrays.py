"""The two C arrays that NVML fills, allocated once and decoded without ctypes field access, and the numbers in them.

nvidia-ml-py builds a fresh array on every call and reads each member through a Python
`__getattribute__`; at ten samples a second on eight GPUs that costs more than the driver call. The
layouts are those of `nvmlFieldValue_t` and `nvmlGpmMetricsGet_t` on 64-bit Linux, the only platform.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import eq
from typing import NamedTuple

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


_TYPES = (("d", None), ("I4x", U32_ONES), ("Q", U64_ONES), ("Q", U64_ONES), ("q", None), ("i4x", None), ("H6x", 0xFFFF))
"""By valueType: the value in the words of `struct`, and the number that stands for no value."""


def _type_of(kind: int) -> tuple[str, int | None]:
    """Return how a value of a type is read; one of a type that is not known here is passed on as a u64."""
    return _TYPES[kind] if kind < len(_TYPES) else ("Q", None)


class FieldArray:
    """An array of `nvmlFieldValue_t`, prepared with field and scope ids.

    struct { u32 fieldId, scopeId; i64 timestamp, latencyUsec; u32 valueType, nvmlReturn; union value; }
    """

    RECORD = 40
    _TYPE = 24
    """Where the type is in a record; the return code and the value follow."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs = tuple(pairs)
        self.count = len(self.pairs)
        self.buffer = (ctypes.c_char * (self.RECORD * self.count))()
        for i, pair in enumerate(self.pairs):
            struct.pack_into("=II", self.buffer, i * self.RECORD, *pair)
        self._set_types((0,) * self.count)

    def stored(self, index: int) -> tuple[int, int, int | float]:
        """Return what the library wrote into a record: its return code, the type of the value, and the value."""
        at = index * self.RECORD + self._TYPE
        (kind,) = struct.unpack_from("=I", self.buffer, at)
        _, code, value = struct.unpack_from(f"=II{_type_of(kind)[0]}", self.buffer, at)
        return code, kind, value

    def store(self, index: int, code: int, kind: int, value: float) -> None:
        """Write one record, as the library does; for a driver that is not the library. Raises struct.error."""
        at = index * self.RECORD + self._TYPE
        struct.pack_into(f"=II{_type_of(kind)[0]}", self.buffer, at, kind, code, value)

    def _set_types(self, kinds: tuple[int, ...]) -> None:
        """Remember how values of these types are read: they rarely change."""
        types = [_type_of(kind) for kind in kinds]
        self._kinds = kinds
        self._ones = [ones for _, ones in types]
        self._layout = struct.Struct("=" + "".join(f"{self._TYPE}xII{value}" for value, _ in types))

    def decode(self) -> Sequence[Slot]:
        """Return the value of each slot, or its error.

        Raises DeviceError or SourceError if the code of a field says that the GPU or the driver is gone.
        """
        words = self._layout.unpack(self.buffer)
        if words[::3] != self._kinds:
            self._set_types(words[::3])
            words = self._layout.unpack(self.buffer)
        codes, values = words[1::3], words[2::3]
        are_values = max(self._kinds, default=0) < len(_TYPES) and not any(map(eq, values, self._ones))
        if are_values and not any(codes) and all(map(math.isfinite, values)):
            return values
        return list(map(self._slot, range(self.count), codes, values))

    def _slot(self, index: int, code: int, value: float) -> Slot:
        if code:
            escalate(DriverError(f"NVML field {self.pairs[index][0]}", code))
            return slot_error(code)
        kind = self._kinds[index]
        if kind >= len(_TYPES):
            return SlotError(Reason.MALFORMED, f"unknown value type {kind}")
        if value == self._ones[index]:
            return SlotError(Reason.IMPLAUSIBLE, f"{value:#x} means no value")
        return value if math.isfinite(value) else _NOT_FINITE


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
        return list(map(_gpm_slot, codes, values))


def _gpm_slot(code: int, value: float) -> Slot:
    if code:
        return slot_error(code)
    return value if math.isfinite(value) else _NOT_FINITE


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
        return SlotError(Reason.MALFORMED, f"{slot} is not a packed ratio of {_RATIO_BITS} bits")
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
    valid = [ratio for ratio in ratios if not isinstance(ratio, SlotError)]
    return max(valid) if valid else ratios[0]
