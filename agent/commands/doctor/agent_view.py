"""What the running agent says of itself, in one question to its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agent.lib.http_answers import AnswerBounds, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget

BOUNDS = AnswerBounds(body=64 << 20)
"""A node of 72 GPUs and as many ports says some ten megabytes."""
DEADLINE_SECONDS = 2.0
SNAPSHOT = "/api/v1/snapshot"


class ToldReading(msgspec.Struct):
    """One reading of the snapshot; None where it is no number."""

    metric: str
    labels: dict[str, str]
    value: float | None


class ToldReport(msgspec.Struct):
    """What one backend says of its last read."""

    backend: str
    outcome: str
    detail: str = ""


class ToldGap(msgspec.Struct):
    """What the agent misses, and why."""

    backend: str
    metric: str
    reason: str
    detail: str = ""
    labels: dict[str, str] = {}


class _Told(msgspec.Struct):
    age: float
    readings: list[ToldReading]
    reports: list[ToldReport]
    gaps: list[ToldGap]


class _Envelope(msgspec.Struct):
    data: _Told


@dataclass(frozen=True)
class AgentView:
    """A snapshot of the running agent, `age` seconds old."""

    age: float
    readings: Mapping[str, list[ToldReading]] = field(default_factory=dict)
    reports: tuple[ToldReport, ...] = ()
    gaps: tuple[ToldGap, ...] = ()

    def values(self, metric: str) -> list[float]:
        """All values of a metric."""
        return [each.value for each in self.readings.get(metric, ()) if each.value is not None]

    @property
    def is_synthetic(self) -> bool:
        """Whether nothing that it says of GPUs and ports is real."""
        return "coldplate_synthetic_info" in self.readings

    @property
    def is_paused(self) -> bool:
        """Whether it has released the driver because somebody asked it to."""
        return "coldplate_devices_paused_until_timestamp_seconds" in self.readings

    def labelled(self, metric: str, label: str, value: float) -> Iterator[str]:
        """The label's value of each series that has this value."""
        return (each.labels.get(label, "") for each in self.readings.get(metric, ()) if each.value == value)


def ask(target: HttpTarget, mono: Callable[[], float]) -> tuple[AgentView | None, str]:
    """The agent's snapshot, or None with the reason why there is none."""
    client = HttpClient(target, BOUNDS, mono)
    try:
        answer = client.exchange(HttpRequest("GET", f"{target.path}{SNAPSHOT}"), mono() + DEADLINE_SECONDS)
    except HttpError as error:
        return None, f"{target.shown}: {error}"
    finally:
        client.close()
    if answer.status != 200:
        return None, f"{target.shown}: {SNAPSHOT} is answered with HTTP status {answer.status}"
    return parse_snapshot(answer.body, target.shown)


def parse_snapshot(body: bytes, where: str) -> tuple[AgentView | None, str]:
    """The snapshot in an answer of `where`."""
    try:
        told: Any = msgspec.json.decode(body, type=_Envelope).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, f"{where}: what answers is no coldplate of this version: {error}"
    readings: dict[str, list[ToldReading]] = {}
    for each in told.readings:
        readings.setdefault(each.metric, []).append(each)
    return AgentView(told.age, readings, tuple(told.reports), tuple(told.gaps)), ""
