"""Prometheus's staleness marker: the one NaN that means that a series has ended.

An ordinary NaN is a value. Only the marker's bits differ, so every test checks the bits.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import compress

STALE_BITS = 0x7FF0000000000002
_STALE_BYTES = struct.pack("=Q", STALE_BITS)
_BYTE_OF_MARKERS = 0x7F
STALE: float = struct.unpack("=d", _STALE_BYTES)[0]

_pack = struct.Struct("=d").pack


def is_stale(value: float) -> bool:
    """Return whether a value is the staleness marker, and not a number or an ordinary NaN."""
    return value != value and _pack(value) == _STALE_BYTES


def without_markers(times: Sequence[float], values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Leave the staleness markers out of a window: a range selector never shows them."""
    if isinstance(values, array):
        # A search of the bytes is a hundred times faster than a check of each value, and most windows have no marker.
        # One byte is searched for first: a search for all of them is slow if most bytes are zero, as in counts.
        raw = values.tobytes()
        if _BYTE_OF_MARKERS not in raw or _STALE_BYTES not in raw:
            return times, values
    elif not any(map(is_stale, values)):
        return times, values
    kept = bytearray(value == value or not is_stale(value) for value in values)
    return array("d", compress(times, kept)), array("d", compress(values, kept))
