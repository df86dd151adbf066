"""What is remembered of the last minutes, as JSON: a list of times, and a list as long for each series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from agent.model import PastMoment, Series
from exporters import envelope


def success(moments: Sequence[PastMoment]) -> Iterator[bytes]:
    """The answer, piece by piece; the oldest moment first, and null where a series had no value."""
    return envelope.success(_data(moments))


def _data(moments: Sequence[PastMoment]) -> Iterator[bytes]:
    yield b'{"timestamps":' + envelope.dump([moment.wall for moment in moments])
    yield b',"series":'
    yield from envelope.array(_series(moments))
    yield b"}"


def _series(moments: Sequence[PastMoment]) -> Iterator[bytes]:
    columns: dict[Series, list[float | None]] = {}
    for place, moment in enumerate(moments):
        for layout, values in moment.parts:
            for series, value in zip(layout.series, values, strict=True):
                column = columns.get(series)
                if column is None:
                    column = columns[series] = [None] * len(moments)
                column[place] = value if math.isfinite(value) else None
        yield b""
    for series, column in columns.items():
        yield envelope.dump({"metric": series.metric.name, "labels": dict(series.all_labels), "values": column})
