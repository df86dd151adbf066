"""Snapshots as requests of Prometheus's remote write 1.0: the same series with the same labels as a scrape stores.

Labels are encoded, and the message compressed, when a layout is first seen; a push fills in its time and its values.

The protocol: https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agent.lib.layout_columns import picker
from agent.model import Layout, Series, Snapshot
from exporters.encoder import AGE_SERIES, group, labels_of
from exporters.push.snappy_template import CompressedMessage, SnappyTemplate, varint

MOST_SERIES = 10_000
"""Series of one request. Receivers limit its bytes, some of them to 32 MiB."""
_TIME = b"\x10"
_TIME_BYTES = 6
"""Milliseconds since the epoch take six bytes until the year 2109."""
_STAMP_BYTES = len(_TIME) + _TIME_BYTES
_LATEST = (1 << 7 * _TIME_BYTES) - 1
_SAMPLE = bytes((0x12, 9 + _STAMP_BYTES, 0x09))
"""What is before the value of a sample: the field of a series and its length, and the field of the value."""
_SAMPLE_BYTES = len(_SAMPLE) + 8 + _STAMP_BYTES
STALE: float = struct.unpack("<d", 0x7FF0000000000002.to_bytes(8, "little"))[0]
"""The NaN by which Prometheus marks the end of a series."""

Pieces = tuple[bytes, ...]
"""The encoded labels of a series, one by one."""


class WriteRequest(NamedTuple):
    """One request: its compressed body, its number of samples, and their time in seconds since the epoch."""

    wall: float
    samples: int
    body: bytes


class RequestWriter:
    """Makes requests of snapshots. `labels` are those of the target, which every series gets."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = {name: value for name, value in labels.items() if value}
        self._layouts: tuple[Layout, ...] = ()
        self._pick: Callable[[Sequence[float]], tuple[float, ...]] = picker(())
        self._known: dict[Series, Pieces] = {}
        self._messages: list[tuple[int, CompressedMessage]] = []
        self._age = self._pieces(AGE_SERIES)
        self._age_message = _message([self._age])

    def write(self, snapshot: Snapshot, age: float) -> list[WriteRequest]:
        """Return everything that the snapshot has, and its age in seconds; series that are gone end with it."""
        layouts = tuple(frame.layout for frame in snapshot.frames)
        made = [] if layouts == self._layouts else self._lay_out(layouts, snapshot.at.wall)
        values = (*self._pick(tuple(chain.from_iterable(frame.values for frame in snapshot.frames))), age)
        begin = 0
        for count, message in self._messages:
            body = message.fill(_stamp(snapshot.at.wall), values[begin : begin + count])
            made.append(WriteRequest(snapshot.at.wall, count, body))
            begin += count
        return made

    def only_age(self, age: float, wall: float) -> WriteRequest:
        """Return only the age of the last snapshot at a wall second: a push without a newer one sends nothing else."""
        return WriteRequest(wall, 1, self._age_message.fill(_stamp(wall), (age,)))

    def end(self, wall: float) -> list[WriteRequest]:
        """Return the end of every series, at an orderly end of the agent."""
        gone = [*self._known.values(), self._age]
        self._known, self._layouts = {}, ()
        return list(_ends(gone, wall))

    def _lay_out(self, layouts: tuple[Layout, ...], wall: float) -> list[WriteRequest]:
        """Lay out the requests for these layouts; returns the ends of series that are gone."""
        series = tuple(chain.from_iterable(each.series for each in layouts))
        places = [
            place for family in group(series) for place in family.members if family.metric is not AGE_SERIES.metric
        ]
        shown = [series[place] for place in places]
        before = self._known
        self._known = {each: before.get(each) or self._pieces(each) for each in shown}
        encoded = [*(self._known[each] for each in shown), self._age]
        self._pick = picker(places)
        chunks = [encoded[begin : begin + MOST_SERIES] for begin in range(0, len(encoded), MOST_SERIES)]
        self._messages = [(len(chunk), _message(chunk)) for chunk in chunks]
        self._layouts = layouts
        left = set(encoded)
        return list(_ends([pieces for pieces in before.values() if pieces not in left], wall))

    def _pieces(self, series: Series) -> Pieces:
        """Return labels in the order of their names.

        Those that the target has, too, are renamed as a scrape renames them.
        """
        own = {"__name__": series.metric.name, **{name: value for name, value in labels_of(series) if value}}
        labels = dict(self._labels)
        for name, value in own.items():
            while name in labels:
                name = f"exported_{name}"
            labels[name] = value
        return tuple(chain.from_iterable(_label(name, labels[name]) for name in sorted(labels)))


def _ends(gone: Sequence[Pieces], wall: float) -> Iterator[WriteRequest]:
    for begin in range(0, len(gone), MOST_SERIES):
        chunk = gone[begin : begin + MOST_SERIES]
        body = _message(chunk).fill(_stamp(wall), [STALE] * len(chunk))
        yield WriteRequest(wall, len(chunk), body)


def _message(encoded: Iterable[Pieces]) -> CompressedMessage:
    template = SnappyTemplate(_STAMP_BYTES)
    for pieces in encoded:
        length = sum(map(len, pieces)) + _SAMPLE_BYTES
        template.constant((b"\x0a" + varint(length), *pieces, _SAMPLE))
        template.number()
        template.stamp()
    return template.finish()


def _label(name: str, value: str) -> Pieces:
    """Return a label; that of the metric's name, which is the longest, in parts of which most are alike in all
    series.
    """
    head, text = _text(b"\x0a", name), _text(b"\x12", value)
    begin = b"\x0a" + varint(len(head) + len(text))
    if name != "__name__":
        return (begin + head + text,)
    end = len(text) - len(value)
    return begin, head + text[:1], text[1:end], text[end:]


def _text(tag: bytes, text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")
    return tag + varint(len(encoded)) + encoded


def _stamp(wall: float) -> bytes:
    """Return the time's field.

    It has as many bytes as ever, by leading zeros, which a reader of Protocol Buffers accepts.
    """
    left = min(max(round(wall * 1000), 0), _LATEST)
    made = bytearray(_TIME)
    for _ in range(_TIME_BYTES - 1):
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)
