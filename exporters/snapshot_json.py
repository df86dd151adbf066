"""The snapshot and the last minutes as JSON, in the envelope of Prometheus's own API."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agent.model import BackendReport, Gap, Gpu, PastMoment, Reading, Series, Snapshot
from exporters import envelope


def success(snapshot: Snapshot, age: float, node: str, states: Mapping[Gpu, str]) -> bytes:
    """Return the whole snapshot of a node.

    `age` in seconds, `node` is its name, `states` are those of the GPUs whose state is known.
    """
    return envelope.success(
        {
            "node": node,
            "sequence": snapshot.sequence,
            "timestamp": snapshot.at.wall,
            "monotonic": snapshot.at.mono,
            "age": age,
            "readings": [_reading(reading) for reading in snapshot],
            "reports": [_report(report) for report in snapshot.reports],
            "gaps": [_gap(report.backend, gap) for report in snapshot.reports for gap in report.gaps],
            "states": [{**dict(gpu.labels), "state": state} for gpu, state in states.items()],
        }
    )


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


def past(moments: Sequence[PastMoment]) -> bytes:
    """Return the last minutes, the oldest moment first, with null where a series had no value."""
    columns: dict[Series, list[float | None]] = {}
    for place, moment in enumerate(moments):
        for layout, values in moment.parts:
            for series, value in zip(layout.series, values, strict=True):
                column = columns.setdefault(series, [])
                column.extend([None] * (place - len(column)))
                column.append(value if math.isfinite(value) else None)
    return envelope.success(
        {
            "timestamps": [moment.wall for moment in moments],
            "series": [
                {
                    "metric": series.metric.name,
                    "labels": dict(series.all_labels),
                    "values": column + [None] * (len(moments) - len(column)),
                }
                for series, column in columns.items()
            ],
        }
    )
