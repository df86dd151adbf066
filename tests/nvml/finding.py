"""Finds values and gaps by a row's name in a sample."""

from __future__ import annotations

from agent.backends.protocol import BackendSample
from agent.model import Gap


def values(sample: BackendSample, name: str) -> dict[tuple[str, ...], float]:
    """The values of a row, by the values of its own labels; a link's number comes first."""
    found = {}
    for reading in sample.readings:
        if reading.metric.name == name:
            link = getattr(reading.entity, "link", None)
            own = tuple(value for _, value in reading.labels)
            found[own if link is None else (str(link), *own)] = reading.value
    return found


def value(sample: BackendSample, name: str) -> float:
    """The one value of a row without labels."""
    return values(sample, name)[()]


def gaps(sample: BackendSample, name: str) -> list[Gap]:
    return [gap for gap in sample.gaps if gap.metric.name == name]
