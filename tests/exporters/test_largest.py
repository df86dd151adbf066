"""The largest node: every page is made in small bits, whatever there is most of, and says what the small ones would."""

import json
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import takewhile
from typing import Any

import pytest

from agent import catalogue
from agent.model import (
    Alert,
    BackendReport,
    Gap,
    Gpu,
    GroupReport,
    IbPort,
    Instant,
    NvLink,
    Outcome,
    Phase,
    Reading,
    Reason,
    RuleHealth,
    RuleReport,
    Series,
    Snapshot,
)
from exporters import landing, snapshot_json
from exporters.encoder import Encoder, Format
from exporters.http_messages import Request
from exporters.pages import compressed
from exporters.routes import Routes
from exporters.rules_json import RuleSelection, alerts, rules
from tests.asking import ask, context
from tests.exporters.conftest import reading
from tests.frames import snapshot_of

BIT = 256 * 1024
"""Bytes that take about a millisecond to make."""


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """72 GPUs with 18 links and a port each, and every label that a row may have: more than 20,000 series."""
    gpus = [Gpu(str(number), f"GPU-{number:08d}-0000-4000-8000-000000000000") for number in range(72)]
    entities: dict[type, list[Any]] = {
        Gpu: gpus,
        NvLink: [NvLink(gpu, link) for gpu in gpus for link in range(18)],
        IbPort: [IbPort(f"mlx5_{number}", "1") for number in range(72)],
    }
    readings = tuple(
        Reading(Series(row, entity, tuple((name, f"{turn} {name}") for name in row.labels)), 1.5 * turn)
        for row in catalogue.ROWS
        for entity in entities.get(row.entity, ())
        for turn in range(4 if row.labels else 1)
    )
    missing = catalogue.BY_NAME["coldplate_gpu_sm_active_ratio"]
    gaps = tuple(Gap(missing, gpu, Reason.TIMEOUT, f"attempt {number}") for gpu in gpus for number in range(50))
    return snapshot_of(1, Instant(100.0, 1.7e9), readings, (BackendReport("nvml", Outcome.OK, 0.1, gaps=gaps),))


def rule(number: int, alerts: int) -> RuleReport:
    firing = tuple(
        Alert(f"R{number}", (("alertname", f"R{number}"), ("place", str(place))), Phase.FIRING, 1.0, 1.7e9 - place)
        for place in range(alerts)
    )
    return RuleReport(f"R{number}", True, "x > 1", hold=60.0, health=RuleHealth.OK, alerts=firing)


GROUPS = {
    "many groups": tuple(
        GroupReport(f"g{number:03d}", "f.yml", 15.0, rules=tuple(rule(50 * number + each, 1) for each in range(50)))
        for number in range(100)
    ),
    "one group": (GroupReport("g", "f.yml", 15.0, rules=tuple(rule(number, 1) for number in range(5000))),),
    "one rule": (GroupReport("g", "f.yml", 15.0, rules=(rule(0, 5000),)),),
}


def largest(bits: Iterable[bytes]) -> tuple[int, bytes]:
    """The size of the largest bit, and all of them."""
    made = list(bits)
    return max(map(len, made)), b"".join(made)


@pytest.mark.parametrize("fmt", Format)
def test_the_metrics(snapshot: Snapshot, fmt: Format) -> None:
    assert len(snapshot.readings) > 20_000
    size, page = largest(Encoder().pieces(snapshot, fmt, 0.5))
    assert size <= 4 * BIT  # a family of 5,184 series: its template is filled in by the interpreter, in one go
    assert page.count(b"\ncoldplate_") >= len(snapshot.readings)
    size, packed = largest(compressed(page))
    assert size <= BIT
    assert len(packed) < len(page) / 3


def test_the_snapshot_in_json(snapshot: Snapshot) -> None:
    size, page = largest(snapshot_json.success(snapshot, 0.5))
    assert size <= BIT
    data = json.loads(page)["data"]
    assert (len(data["readings"]), len(data["gaps"])) == (len(snapshot.readings), 3600)


@pytest.mark.parametrize("shape", GROUPS)
def test_rules_and_alerts(shape: str) -> None:
    size, page = largest(rules(GROUPS[shape], RuleSelection()))
    assert size <= BIT
    found = [
        alert for group in json.loads(page)["data"]["groups"] for each in group["rules"] for alert in each["alerts"]
    ]
    assert len(found) == 5000
    size, page = largest(alerts(GROUPS[shape]))
    assert size <= BIT
    assert json.loads(page)["data"]["alerts"] == found


@pytest.mark.parametrize("shape", GROUPS)
def test_the_overview_shows_the_worst_of_all(snapshot: Snapshot, shape: str) -> None:
    worst = Alert("Worst", (("alertname", "Worst"), ("severity", "critical")), Phase.FIRING, 1.0, 1.7e9)
    groups = (*GROUPS[shape], GroupReport("z", "z.yml", 15.0, rules=(rule(1, 0)._replace(alerts=(worst,)),)))
    size, page = largest(landing.pieces(context(snapshot, rules=lambda: groups), (), 100.5, 0))
    assert size <= BIT
    assert b"5001 firing" in page
    assert page.index(b"Worst") < page.index(b"R0")
    assert b"and 4951 more" in page


def empty_bits(readings: Iterable[Reading], groups: tuple[GroupReport, ...]) -> int:
    """At how many places the overview can be put aside before the first word of it is there."""
    snapshot = snapshot_of(1, Instant(100.0, 1.7e9), tuple(readings))
    bits = landing.pieces(context(snapshot, rules=lambda: groups), (), 100.5, 0)
    return sum(1 for _ in takewhile(lambda bit: not bit, bits))


def test_the_overview_can_be_put_aside_between_a_few_alerts() -> None:
    """A step that looks at many of them makes scrapes wait for as long."""
    gpus = [Gpu(str(number), f"GPU-{number}") for number in range(72)]
    ups = [reading("coldplate_gpu_up", 1.0, gpu) for gpu in gpus]
    few, many = (GroupReport("g", "g.yml", 15.0, rules=(rule(1, count),)) for count in (0, 5000))
    assert empty_bits(ups, (many,)) - empty_bits(ups, (few,)) >= 5000 / 250


def test_every_page_is_made_in_many_turns_and_the_metrics_come_first(snapshot: Snapshot) -> None:
    """With a clock that goes on by a tenth of a millisecond whenever it is looked at."""
    ticks: Iterator[int] = iter(range(10**9))
    site = Routes(context(snapshot, clock=lambda: 100.0 + next(ticks) * 1e-4, rules=lambda: GROUPS["many groups"]))
    slow = [site(Request("GET", path)) for path in ("/api/v1/rules", "/api/v1/snapshot", "/api/v1/alerts", "/")]
    metrics = site(Request("GET", "/metrics"))
    turns = 0
    while metrics.response is None:
        assert site.work()
        turns += 1
    assert 1 < turns < 20
    assert [each.response for each in slow] == [None] * 4
    while site.work():
        turns += 1
    assert turns > 100
    assert {each.response.status for each in slow} == {HTTPStatus.OK}
    assert ask(site, Request("GET", "/api/v1/rules")).status == HTTPStatus.OK
