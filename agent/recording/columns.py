"""Rows of numbers as bytes, and back: a column that does not change takes one value, the others one for each row.

Values are 64-bit floats as they are. What makes a recording small is that most columns are constant for some seconds
and that the compressor finds what repeats in the others: exclusive-or with the value before, or the bytes of all values
sorted by their place, made the files of a synthetic training node a tenth larger, and took twice the time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, compress, islice, repeat
from math import isfinite

VALUE = 8
"""Bytes of a value."""


def packed(rows: Sequence[Sequence[float]]) -> bytes:
    """Rows of equal width: a byte for each column, 1 where it changes; the constants; and the columns that change."""
    height, width = len(rows), len(rows[0])
    step = VALUE * height
    columns = struct.pack(f"<{width * height}d", *chain.from_iterable(zip(*rows, strict=True)))
    held = [columns[start : start + step] for start in range(0, width * step, step)]
    # Compared as bytes: 0.0 equals -0.0, and must not become it.
    changes = bytes([each != each[:VALUE] * height for each in held])
    constants = [each[:VALUE] for each, changing in zip(held, changes, strict=True) if not changing]
    return b"".join((changes, *constants, *compress(held, changes)))


def unpacked(data: bytes, at: int, width: int, height: int) -> tuple[Iterator[tuple[float, ...]], int]:
    """Rows that were packed at a place of the data, one after the other, and the place behind. Raises ValueError."""
    changes = data[at : at + width]
    moving = changes.count(1)
    still = changes.count(0)
    count = still + moving * height
    after = at + width + VALUE * count
    if still + moving != width or after > len(data):
        raise ValueError("columns that are none, or cut")
    values = struct.unpack_from(f"<{count}d", data, at + width)
    if not all(map(isfinite, values)):
        raise ValueError("a value that is not finite")
    constants = iter(values[:still])
    changing = iter(range(still, count, height))
    columns = [_slice(values, next(changing), height) if changed else repeat(next(constants)) for changed in changes]
    # Made one by one: a few bytes of a hostile file stand for any number of rows.
    rows = islice(zip(*columns), height) if width else repeat((), height)  # noqa: B905 constants have no end
    return rows, after


def _slice(values: tuple[float, ...], start: int, height: int) -> tuple[float, ...]:
    return values[start : start + height]
