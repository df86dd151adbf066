"""Rules and alerts in Prometheus's JSON: the format, and which rules a query asks for."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import Alert, GroupReport, Phase, RuleHealth, RuleReport
from exporters.http_messages import Request, Response
from exporters.routes import Routes, is_reserved
from tests.asking import ask, context

BEGAN = 1_700_000_000.25


def alert(phase: Phase = Phase.FIRING, value: float = 1.0, **changes: Any) -> Alert:
    made = Alert("GpuHot", (("alertname", "GpuHot"), ("gpu", "0")), phase, value, BEGAN)
    return replace(made, **changes)


HOT = RuleReport(
    "GpuHot",
    True,
    "temperature > 90",
    (("severity", "critical"),),
    (("summary", "GPU {{ $labels.gpu }} is hot"),),
    hold=60.0,
    keep=2.5,
    health=RuleHealth.OK,
    evaluated_at=1_700_000_060.0,
    duration=0.0005,
    alerts=(alert(annotations={"summary": "GPU 0 is hot"}),),
)
COLD = RuleReport("GpuCold", True, "temperature < 0")
MEAN = RuleReport("gpu:temperature:mean", False, "avg(temperature)", health=RuleHealth.FAILED, error="no")
SUM = RuleReport("gpu:power:sum", False, "sum(power)", (("tier", "gold"),))
GROUPS = (
    GroupReport("zeta", "/etc/b.yml", 15.0, rules=(SUM,)),
    GroupReport("thermal", "/etc/b.yml", 7.5, 20, 1_700_000_060.0, 0.001, (HOT, COLD, MEAN)),
    GroupReport("winter", "/etc/a.yml", 60.0, rules=(COLD,)),
)


def strict(body: bytes) -> Any:
    """Parsed as a strict parser does: Python's own takes NaN and Infinity, which are no JSON."""

    def refuse(token: str) -> Any:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(body, parse_constant=refuse)


def get(path: str, *groups: GroupReport) -> Response:
    path, _, query = path.partition("?")
    return ask(Routes(context(rules=lambda: groups)), Request("GET", path, query))


def alerts(*found: Alert) -> list[dict[str, Any]]:
    group = replace(GROUPS[0], rules=(HOT._replace(alerts=found),))
    answer = strict(get("/api/v1/alerts", group).body)
    assert answer["status"] == "success"
    return answer["data"]["alerts"]


def groups_of(query: str) -> list[dict[str, Any]]:
    answer = get(f"/api/v1/rules?{query}", *GROUPS)
    assert answer.status == HTTPStatus.OK
    return strict(answer.body)["data"]["groups"]


def names(query: str) -> list[str]:
    return [rule["name"] for group in groups_of(query) for rule in group["rules"]]


def test_only_pending_and_firing_alerts_are_shown() -> None:
    found = alerts(alert(Phase.RESOLVED), alert(Phase.PENDING), alert())
    assert [each["state"] for each in found] == ["pending", "firing"]


@pytest.mark.parametrize(
    ("wall", "text"),
    [
        (1_700_000_000.0, "2023-11-14T22:13:20Z"),
        (1_700_000_000.000001, "2023-11-14T22:13:20.000001Z"),
        (1_700_000_000.1, "2023-11-14T22:13:20.1Z"),
        (0.0, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_have_as_many_digits_as_they_need(wall: float, text: str) -> None:
    assert alerts(alert(active_at=wall))[0]["activeAt"] == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_reads_back_as_the_same_number(value: float) -> None:
    text = alerts(alert(value=value))[0]["value"]
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    assert mantissa[0] != "0" or value == 0
    assert not mantissa.endswith(("0", ".")) or len(mantissa) == 1
    assert len(exponent) >= 3


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text: str) -> None:
    (found,) = alerts(alert(labels=(("gpu", text),), annotations={"summary": text}))
    assert found["labels"]["gpu"] == found["annotations"]["summary"] == text


def test_control_characters_and_rare_ones_survive_as_plain_ascii() -> None:
    nasty = "\x00\x1f\n\t\"\\\x7f\u2028<b>&'\U0001f525 ü"
    body = get("/api/v1/alerts", replace(GROUPS[0], rules=(HOT._replace(alerts=(alert(annotations={"a": nasty}),)),)))
    assert body.body.isascii()
    assert not any(byte < 0x20 for byte in body.body.rstrip(b"\n"))
    assert strict(body.body)["data"]["alerts"][0]["annotations"] == {"a": nasty}
    assert body.content_type == "application/json"


def test_groups_are_in_the_order_of_files_and_names_and_rules_in_theirs() -> None:
    assert [(group["file"], group["name"]) for group in groups_of("")] == [
        ("/etc/a.yml", "winter"),
        ("/etc/b.yml", "thermal"),
        ("/etc/b.yml", "zeta"),
    ]
    assert names("rule_group[]=thermal") == ["GpuHot", "GpuCold", "gpu:temperature:mean"]


def test_a_group_its_alerting_rule_and_its_alert_are_shown_in_full() -> None:
    (group,) = groups_of("rule_name[]=GpuHot")
    (rule,) = group.pop("rules")
    assert group == {
        "name": "thermal", "file": "/etc/b.yml", "interval": 7.5, "limit": 20, "evaluationTime": 0.001,
        "lastEvaluation": "2023-11-14T22:14:20Z",
    }  # fmt: skip
    shown = {
        "labels": {"alertname": "GpuHot", "gpu": "0"}, "annotations": {"summary": "GPU 0 is hot"}, "state": "firing",
        "activeAt": "2023-11-14T22:13:20.25Z", "value": "1e+00",
    }  # fmt: skip
    assert rule.pop("alerts") == [shown] == alerts(alert(annotations={"summary": "GPU 0 is hot"}))
    assert rule == {
        "state": "firing", "name": "GpuHot", "query": "temperature > 90", "duration": 60, "keepFiringFor": 2.5,
        "labels": {"severity": "critical"}, "annotations": {"summary": "GPU {{ $labels.gpu }} is hot"},
        "health": "ok", "evaluationTime": 0.0005, "lastEvaluation": "2023-11-14T22:14:20Z", "type": "alerting",
    }  # fmt: skip


def test_whole_numbers_have_no_fraction() -> None:
    assert b'"interval":60,"limit":0,"evaluationTime":0,' in get("/api/v1/rules", *GROUPS).body


@pytest.mark.parametrize(
    ("phases", "state"),
    [
        ((), "inactive"),
        ((Phase.RESOLVED,), "inactive"),
        ((Phase.PENDING, Phase.RESOLVED), "pending"),
        ((Phase.PENDING, Phase.FIRING, Phase.PENDING), "firing"),
    ],
)
def test_a_rule_is_as_bad_as_the_worst_of_its_alerts(phases: tuple[Phase, ...], state: str) -> None:
    rule = HOT._replace(alerts=tuple(alert(phase) for phase in phases))
    answer = strict(get("/api/v1/rules", replace(GROUPS[0], rules=(rule,))).body)
    assert answer["data"]["groups"][0]["rules"][0]["state"] == state


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("type=alert", ["GpuCold", "GpuHot", "GpuCold"]),
        ("type=Record", ["gpu:temperature:mean", "gpu:power:sum"]),
        ("type=", ["GpuCold", "GpuHot", "GpuCold", "gpu:temperature:mean", "gpu:power:sum"]),
        ("type=record&type=nonsense", ["gpu:temperature:mean", "gpu:power:sum"]),
        ("rule_name[]=GpuHot&rule_name[]=gpu:power:sum", ["GpuHot", "gpu:power:sum"]),
        ("rule_name%5B%5D=" + quote("gpu:power:sum", safe=""), ["gpu:power:sum"]),
        ("rule_name[]=", []),
        ("rule_name[]=GpuCold&rule_group[]=thermal", ["GpuCold"]),
        ("file[]=/etc/a.yml&file[]=/etc/none.yml", ["GpuCold"]),
        ("file[]=/etc/a.yml&rule_group[]=thermal", []),
        ("type=record&rule_name[]=GpuHot", []),
        ("something=else&rule_name[]=GpuHot", ["GpuHot"]),
    ],
)
def test_a_query_chooses_rules(query: str, expected: list[str]) -> None:
    assert names(query) == expected


def test_a_group_of_which_nothing_is_left_is_left_out() -> None:
    assert [group["name"] for group in groups_of("type=record")] == ["thermal", "zeta"]
    assert [group["name"] for group in groups_of("rule_name[]=gpu:power:sum")] == ["zeta"]


@pytest.mark.parametrize(("text", "told"), [("true", 0), ("1", 0), ("T", 0), ("false", 1), ("0", 1), ("", 1)])
def test_alerts_can_be_left_out_of_rules(text: str, told: int) -> None:
    (group,) = groups_of(urlencode({"rule_name[]": "GpuHot", "exclude_alerts": text}))
    assert len(group["rules"][0]["alerts"]) == told
    assert group["rules"][0]["state"] == "firing"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("type=alerts", 'invalid parameter "type": not supported value "alerts"'),
        ("exclude_alerts=maybe", 'invalid parameter "exclude_alerts": "maybe" is neither true nor false'),
        (
            "match[]=%7Bseverity%3D%22page%22%7D",
            'invalid parameter "match[]": not supported here; use rule_name[], rule_group[] or file[]',
        ),
    ],
)
def test_a_query_that_cannot_be_followed_is_refused_in_prometheus_json(query: str, error: str) -> None:
    answer = get(f"/api/v1/rules?{query}", *GROUPS)
    assert (answer.status, answer.content_type) == (HTTPStatus.BAD_REQUEST, "application/json")
    assert strict(answer.body) == {"status": "error", "errorType": "bad_data", "error": error}


@pytest.mark.parametrize(("path", "key"), [("/api/v1/alerts", "alerts"), ("/api/v1/rules", "groups")])
def test_without_rules_the_lists_are_empty(path: str, key: str) -> None:
    assert is_reserved(path)
    assert strict(get(path).body) == {"status": "success", "data": {key: []}}
    assert strict(ask(Routes(context()), Request("GET", path)).body) == {"status": "success", "data": {key: []}}
