"""A node made by hand: readings of any name, rules as text, and time as a number."""

from collections.abc import Mapping
from typing import Any

import pytest

from agent.model import Gpu, Instant, Kind, Lane, Metric, Reading, Series, Snapshot, Unit
from alerts import rulefile
from alerts.engine import Ruleset
from tests.frames import snapshot_of

START = Instant(1_000.0, 1_700_000_000.0)


class Node:
    """Makes snapshots; a metric and a series are made once, as the sampler does."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._series: dict[tuple[str, str], Series] = {}
        self._sequence = 0

    def reading(self, name: str, gpu: str, value: float) -> Reading:
        metric = self._metrics.setdefault(name, Metric(name, Kind.GAUGE, Unit.NONE, Gpu, "", Lane.FAST, ()))
        series = self._series.setdefault((name, gpu), Series(metric, Gpu(gpu, f"GPU-{gpu}")))
        return Reading(series, value)

    def snapshot(self, values: Mapping[tuple[str, str], float], at: Instant) -> Snapshot:
        self._sequence += 1
        return snapshot_of(self._sequence, at, tuple(self.reading(*key, value) for key, value in values.items()))


def later(seconds: float, clock_step: float = 0.0) -> Instant:
    """So many seconds after the start, and with the wall clock set by so much in between."""
    return Instant(START.mono + seconds, START.wall + seconds + clock_step)


def ruleset(text: str, name: str = "rules.yml", **options: Any) -> Ruleset:
    """Rules in the short form `{record: ..., expr: ...}`, one group, or whole groups."""
    if not text.lstrip().startswith("groups"):
        text = f"groups: [{{name: g, rules: [{text}]}}]"
    return Ruleset((rulefile.parse(text, name),), **options)


@pytest.fixture
def node() -> Node:
    return Node()
