"""The largest node: every page says what those of small nodes say, whatever there is most of."""

import json
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
from exporters.pages import compress
from exporters.rules_json import RuleSelection, alerts, rules
from tests.asking import context
from tests.frames import snapshot_of


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


@pytest.mark.parametrize("fmt", Format)
def test_the_metrics(snapshot: Snapshot, fmt: Format) -> None:
    assert len(snapshot.readings) > 20_000
    page = Encoder().render(snapshot, fmt, 0.5)
    assert page.count(b"\ncoldplate_") >= len(snapshot.readings)
    assert len(compress(page)) < len(page) / 3


def test_the_snapshot_in_json(snapshot: Snapshot) -> None:
    data = json.loads(snapshot_json.success(snapshot, 0.5, "n", {}))["data"]
    assert (len(data["readings"]), len(data["gaps"])) == (len(snapshot.readings), 3600)


@pytest.mark.parametrize("shape", GROUPS)
def test_rules_and_alerts(shape: str) -> None:
    groups = json.loads(rules(GROUPS[shape], RuleSelection()))["data"]["groups"]
    shown = [alert for group in groups for rule in group["rules"] for alert in rule["alerts"]]
    assert len(shown) == 5000
    assert json.loads(alerts(GROUPS[shape]))["data"]["alerts"] == shown


@pytest.mark.parametrize("shape", GROUPS)
def test_the_overview_shows_the_worst_of_all(snapshot: Snapshot, shape: str) -> None:
    worst = Alert("Worst", (("alertname", "Worst"), ("severity", "critical")), Phase.FIRING, 1.0, 1.7e9)
    groups = (*GROUPS[shape], GroupReport("z", "z.yml", 15.0, rules=(rule(1, 0)._replace(alerts=(worst,)),)))
    page = landing.render(context(snapshot, rules=lambda: groups), (), 100.5, 0)
    assert b"5001 firing" in page
    assert page.index(b"Worst") < page.index(b"R0")
    assert b"and 4951 more" in page
