"""The snapshot and the last minutes as JSON, in the envelope of Prometheus's own API."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from agent.model import BackendReport, Gap, PastMoment, Reading, Series, Snapshot
from exporters import envelope


def success(snapshot: Snapshot, age: float) -> Iterator[bytes]:
    """Yield the whole snapshot, piece by piece; `age` in seconds."""
    about = {"sequence": snapshot.sequence, "timestamp": snapshot.at.wall, "monotonic": snapshot.at.mono, "age": age}
    yield envelope.BEGIN + envelope.dump(about)[:-1]
    yield b',"readings":'
    yield from envelope.array(envelope.batches(map(_reading, snapshot)))
    yield b',"reports":'
    yield from envelope.array(envelope.batches(map(_report, snapshot.reports)))
    yield b',"gaps":'
    gaps = (_gap(report.backend, gap) for report in snapshot.reports for gap in report.gaps)
    yield from envelope.array(envelope.batches(gaps))
    yield b"}" + envelope.END


def _reading(reading: Reading) -> dict[str, Any]:
    series = reading.series
    return {
        "metric": series.metric.name,
        "labels": dict(series.all_labels),
        "value": reading.value if math.isfinite(reading.value) else None,
        "unit": series.metric.unit.value,
    }


def _report(report: BackendReport) -> dict[str, Any]:
    return {
        "backend": report.backend,
        "outcome": report.outcome.value,
        "duration": report.duration,
        "detail": report.detail,
        "calls": report.calls,
    }


def _gap(backend: str, gap: Gap) -> dict[str, Any]:
    return {
        "backend": backend,
        "metric": gap.metric.name,
        "labels": dict(gap.entity.labels),
        "reason": gap.reason.value,
        "detail": gap.detail,
    }


def past(moments: Sequence[PastMoment]) -> Iterator[bytes]:
    """Yield the last minutes, piece by piece; the oldest moment first, and null where a series had no value."""
    yield envelope.BEGIN + b'{"timestamps":' + envelope.dump([moment.wall for moment in moments])
    yield b',"series":'
    yield from envelope.array(_past_series(moments))
    yield b"}" + envelope.END


def _past_series(moments: Sequence[PastMoment]) -> Iterator[bytes]:
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
