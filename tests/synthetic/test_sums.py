"""No series of a family moves as the sum of its neighbours does, whatever happens on the node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest

from agent.backends.protocol import Channel, DeviceError
from agent.backends.synthetic.loader import shipped_scenarios
from agent.model import Entity, Instant, Kind, Lane, Reading, Series

MOMENTS = [float(second) for second in range(0, 1000, 50)]
Course = tuple[float, ...]


def courses(node) -> dict[tuple[str, Entity], dict[Series, Course]]:
    """How each counter and state that is told apart by labels went, by family and device."""
    seen: dict[Series, list[float]] = defaultdict(list)
    for moment in MOMENTS:
        for channel in node.channels:
            for lane in (Lane.FAST, Lane.SLOW):
                for reading in told(channel, lane, node.instant(moment)):
                    if reading.metric.labels and reading.metric.kind in (Kind.COUNTER, Kind.STATE):
                        seen[reading.series].append(reading.value)
    families: dict[tuple[str, Entity], dict[Series, Course]] = defaultdict(dict)
    for series, values in seen.items():
        if len(values) == len(MOMENTS):
            families[series.metric.name, series.entity][series] = tuple(values)
    return families


def told(channel: Channel, lane: Lane, now: Instant) -> Sequence[Reading]:
    """The readings, none of a GPU that is lost."""
    try:
        return channel.read(lane, now).readings
    except DeviceError:
        return ()


def totals(family: dict[Series, Course]) -> Iterator[str]:
    moving = {series: course for series, course in family.items() if len(set(course)) > 1}
    for series, course in moving.items():
        others = [other for each, other in moving.items() if each is not series]
        for size in range(1, len(others) + 1):
            for parts in combinations(others, size):
                added = [sum(values) for values in zip(*parts, strict=True)]
                if all(abs(a - b) <= 1e-6 * max(1.0, abs(a)) for a, b in zip(course, added, strict=True)):
                    yield repr(series)


ENDLESS = {"driver-hang"}
"""Where a read does not return."""


@pytest.mark.parametrize("scenario", sorted({name for name, _ in shipped_scenarios()} - ENDLESS))
def test_no_series_is_the_total_of_its_neighbours(play, scenario: str) -> None:
    assert [each for family in courses(play(scenario)).values() for each in totals(family)] == []
