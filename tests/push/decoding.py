"""Snappy and Protocol Buffers read as their documents say it, and not as our code writes them.

https://github.com/google/snappy/blob/main/format_description.txt and
https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """One sample as the receiver gets it; `stamp` in milliseconds."""

    labels: tuple[tuple[str, str], ...]
    bits: int
    stamp: int

    @property
    def name(self) -> str:
        return dict(self.labels)["__name__"]

    @property
    def value(self) -> float:
        return float(struct.unpack("<d", self.bits.to_bytes(8, "little"))[0])

    @property
    def ends(self) -> bool:
        return self.bits == 0x7FF0000000000002


def plain(body: bytes) -> bytes:
    """What a block of snappy's raw format holds."""
    length, at = _varint(body, 0)
    made = bytearray()
    while at < len(body):
        tag = body[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            size = tag >> 2
            if size >= 60:
                width = size - 59
                size = int.from_bytes(body[at : at + width], "little")
                at += width
            made += body[at : at + size + 1]
            assert at + size + 1 <= len(body)
            at += size + 1
            continue
        assert kind in (2, 3), "the short copies are not used"
        width = 2 if kind == 2 else 4
        distance = int.from_bytes(body[at : at + width], "little")
        at += width
        assert 0 < distance <= len(made)
        for _ in range((tag >> 2) + 1):
            made.append(made[-distance])
    assert len(made) == length
    return bytes(made)


def samples(body: bytes) -> list[Sent]:
    """The samples of a request's body; labels must be sorted, unique and not empty."""
    found = []
    for number, series in _fields(plain(body)):
        assert number == 1
        labels = []
        for inner, content in _fields(series):
            if inner == 1:
                pair = dict(_fields(content))
                labels.append((pair[1].decode(), pair[2].decode()))
            else:
                assert inner == 2
                sample = dict(_fields(content))
                found.append(Sent(tuple(labels), sample[1], sample[2]))
        names = [name for name, _ in labels]
        assert names == sorted(set(names))
        assert all(value for _, value in labels)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == 1:
            yield key >> 3, int.from_bytes(message[at : at + 8], "little")
            at += 8
        else:
            assert kind == 2
            length, at = _varint(message, at)
            assert at + length <= len(message)
            yield key >> 3, message[at : at + length]
            at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
