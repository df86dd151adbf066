"""Our answers beside those of a real Prometheus that evaluates the same rule file."""

import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.model import Alert, GroupReport, Phase, RuleHealth, RuleReport
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import Storage
from alerts.rulefile import load
from exporters.http_messages import Request, Response
from exporters.routes import Routes
from tests.asking import ask, context
from tests.servers import fetch, need, prometheus
from tests.waiting import wait_until

VALUES = ("1e-07", "1.5e-7", "0.1", "123456789", "1e100", "5e-324", "1e22", "NaN", "+Inf", "-Inf", "-0", "2.5")
TWO = '(label_replace(vector(1), "a", "1", "", "") or vector(1))'
MANY = " or ".join(f'label_replace(vector({value}), "n", "{at}", "", "")' for at, value in enumerate(VALUES))
RULES = f"""
groups:
  - name: some
    interval: 1s
    limit: 20
    rules:
      - alert: Fires
        expr: vector(1) > 0
        labels: {{severity: critical, tier: '{{{{ $value }}}}'}}
        annotations: {{summary: "value {{{{ $value }}}} <&> \\U0001F525 \\x01"}}
      - alert: Waits
        expr: label_replace(vector(1), "gpu", "0", "", "")
        for: 1h
        keep_firing_for: 5m
      - alert: Quiet
        expr: vector(1) > 2
      - record: some:thing
        expr: vector(2)
        labels: {{tier: gold}}
      - record: other:thing
        expr: vector(2)
      - alert: Broken
        expr: {TWO} * on () {TWO}
      - alert: Values
        expr: {MANY}
  - name: rarely
    interval: 10y
    rules:
      - alert: NotYet
        expr: vector(1) > 0
      - record: not:yet
        expr: vector(2)
"""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?(Z|[+-]\d\d:\d\d)")
NEVER = "0001-01-01T00:00:00Z"

KNOWN_DIFFERENCES = {
    # key: why it may have another value here than there
    "query": "Prometheus prints the expression anew, we tell it as it is written",
    "evaluationTime": "a measurement",
}


OURS = {"firesAt", "nextEvaluation"}


def fetched(url: str) -> tuple[int, Any]:
    try:
        return 200, json.loads(fetch(url))
    except HTTPError as error:
        return error.code, json.loads(error.reason)


def evaluated(url: str) -> bool:
    """Whether the first group has been evaluated to its end."""
    try:
        status, answer = fetched(f"{url}/api/v1/rules?type=alert")
    except (OSError, ValueError):  # before it is ready, it answers 503 with a plain text
        return False
    groups = answer["data"]["groups"] if status == 200 else []
    return any(group["name"] == "some" and group["lastEvaluation"] != NEVER for group in groups)


@pytest.fixture(scope="session")
def rule_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prometheus-rules")
    (folder / "rules.yml").write_text(RULES, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def theirs(rule_folder: Path) -> Iterator[Callable[[str], tuple[int, Any]]]:
    """Asks the real Prometheus."""
    config = f"global: {{evaluation_interval: 1s}}\nrule_files: ['{rule_folder}/rules.yml']\n"
    need("prometheus", left_out="nothing compares our answers with its own")
    with prometheus(config, rule_folder) as url:
        wait_until(lambda: evaluated(url))
        yield lambda path: fetched(url + path)


@pytest.fixture(scope="session")
def ours(rule_folder: Path) -> Callable[[str], tuple[int, Any]]:
    """Asks a site whose rules were evaluated once by our own engine."""
    file = load(rule_folder / "rules.yml")
    some, rarely = (GroupEvaluator(each) for each in file.groups)
    some.evaluate(Storage(), 1_700_000_000.125)
    reports: tuple[GroupReport, ...] = (some.report(1.0), rarely.report(10 * 365 * 86_400.0))
    site = Routes(context(rules=lambda: reports))

    def answer(path: str) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        response = ask(site, Request("GET", path, query))
        return int(response.status), json.loads(response.body)

    return answer


def comparable(value: Any, key: str = "") -> Any:
    """An answer with times and known differences replaced by their types, and alerts in one order.

    Prometheus has nothing of OURS.
    """
    if isinstance(value, dict):
        return {name: comparable(each, name) for name, each in value.items() if name not in OURS}
    if isinstance(value, list):
        found = [comparable(each) for each in value]
        return sorted(found, key=json.dumps) if key == "alerts" else found
    if key in ("lastEvaluation", "activeAt") and value != NEVER:
        assert TIME.fullmatch(value), value
        return "a time"
    if key in KNOWN_DIFFERENCES:
        return "a number" if isinstance(value, (int, float)) else type(value).__name__
    return value


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/alerts",
        "/api/v1/rules",
        "/api/v1/rules?type=alert",
        "/api/v1/rules?type=record",
        "/api/v1/rules?type=x",
    ],
)
def test_we_answer_as_prometheus_does(
    theirs: Callable[[str], tuple[int, Any]], ours: Callable[[str], tuple[int, Any]], path: str
) -> None:
    my_status, mine = ours(path)
    their_status, other = theirs(path)
    assert my_status == their_status
    assert comparable(mine) == comparable(other)


def test_the_rules_that_were_compared_are_of_every_kind(ours: Callable[[str], tuple[int, Any]]) -> None:
    _, answer = ours("/api/v1/rules")
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
    assert {rule.get("state") for rule in rules} == {"firing", "pending", "inactive", None}
    assert {rule["health"] for rule in rules} == {"ok", "err", "unknown"}
    assert {rule["name"]: len(rule.get("alerts", ())) for rule in rules}["Values"] == len(VALUES)


# Rules and alerts in Prometheus's JSON: the format, and which rules a query asks for.
BEGAN = 1_700_000_000.25


def alert(phase: Phase = Phase.FIRING, value: float = 1.0, **changes: Any) -> Alert:
    made = Alert("GpuHot", (("alertname", "GpuHot"), ("gpu", "0")), phase, value, BEGAN)
    return replace(made, **changes)


HOT = RuleReport("GpuHot", True, "temperature > 90", health=RuleHealth.OK, alerts=(alert(),))
COLD = RuleReport("GpuCold", True, "temperature < 0")
MEAN = RuleReport("gpu:temperature:mean", False, "avg(temperature)", health=RuleHealth.FAILED, error="no")
SUM = RuleReport("gpu:power:sum", False, "sum(power)", (("tier", "gold"),))
GROUPS = (
    GroupReport("zeta", "/etc/b.yml", 15.0, rules=(SUM,)),
    GroupReport("thermal", "/etc/b.yml", 7.5, rules=(HOT, COLD, MEAN)),
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
    """As they are told, in plain ASCII."""
    group = replace(GROUPS[0], rules=(HOT._replace(alerts=found),))
    response = get("/api/v1/alerts", group)
    assert response.content_type == "application/json"
    assert response.body.isascii()
    assert not any(byte < 0x20 for byte in response.body.rstrip(b"\n"))
    answer = strict(response.body)
    assert answer["status"] == "success"
    return answer["data"]["alerts"]


def test_every_key_of_an_alert_is_documented() -> None:
    effect = Alert("A", (), Phase.PENDING, 1.0, 1.0, inhibited_by="B", fires_at=2.0)
    document = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
    section = document.partition("### Alerts and rules")[2].partition("A rule has")[0]
    (keys,) = alerts(effect)
    assert {"inhibitedBy", "firesAt", "activeAt"} < keys.keys()
    assert [key for key in keys if f"`{key}`" not in section] == []


def groups_of(query: str) -> list[dict[str, Any]]:
    answer = get(f"/api/v1/rules?{query}", *GROUPS)
    assert answer.status == HTTPStatus.OK
    return strict(answer.body)["data"]["groups"]


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
@example(2.0**-24)
def test_a_value_reads_back_as_the_same_number(value: float) -> None:
    text = alerts(alert(value=value))[0]["value"]
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    assert mantissa[0] != "0" or value == 0
    assert not mantissa.endswith(("0", ".")) or len(mantissa) == 1
    assert len(exponent) >= 3


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\x00\x1f\n\t\"\\\x7f\u2028<b>&'\U0001f525 ü")
def test_any_text_survives(text: str) -> None:
    (found,) = alerts(alert(labels=(("gpu", text),), annotations={"summary": text}))
    assert found["labels"]["gpu"] == found["annotations"]["summary"] == text


@pytest.mark.parametrize(
    ("phases", "state", "shown"),
    [
        ((), "inactive", []),
        ((Phase.RESOLVED,), "inactive", []),
        ((Phase.PENDING, Phase.RESOLVED), "pending", ["pending"]),
        ((Phase.PENDING, Phase.FIRING), "firing", ["pending", "firing"]),
    ],
)
def test_a_rule_is_as_bad_as_the_worst_of_its_alerts_without_those_that_ended(
    phases: tuple[Phase, ...], state: str, shown: list[str]
) -> None:
    rule = HOT._replace(alerts=tuple(alert(phase) for phase in phases))
    body = get("/api/v1/rules", replace(GROUPS[0], interval=60.0, rules=(rule,))).body
    (told,) = strict(body)["data"]["groups"][0]["rules"]
    assert (told["state"], [each["state"] for each in told["alerts"]]) == (state, shown)
    assert b'"interval":60,"limit":0,"evaluationTime":0,' in body  # whole numbers have no fraction


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("type=alert", {"winter": ["GpuCold"], "thermal": ["GpuHot", "GpuCold"]}),
        ("type=Record", {"thermal": [MEAN.name], "zeta": [SUM.name]}),
        ("type=", {"winter": ["GpuCold"], "thermal": ["GpuHot", "GpuCold", MEAN.name], "zeta": [SUM.name]}),
        ("type=record&type=nonsense", {"thermal": [MEAN.name], "zeta": [SUM.name]}),
        ("rule_name[]=GpuHot&rule_name[]=gpu:power:sum", {"thermal": ["GpuHot"], "zeta": [SUM.name]}),
        ("rule_name%5B%5D=" + quote(SUM.name, safe=""), {"zeta": [SUM.name]}),
        ("rule_name[]=", {}),
        ("rule_name[]=GpuCold&rule_group[]=thermal", {"thermal": ["GpuCold"]}),
        ("file[]=/etc/a.yml&file[]=/etc/none.yml", {"winter": ["GpuCold"]}),
        ("file[]=/etc/a.yml&rule_group[]=thermal", {}),
        ("type=record&rule_name[]=GpuHot", {}),
        ("something=else&rule_name[]=GpuHot", {"thermal": ["GpuHot"]}),
    ],
)
def test_a_query_chooses_rules_and_leaves_out_groups_without_any(query: str, expected: dict[str, list[str]]) -> None:
    found = {group["name"]: [rule["name"] for rule in group["rules"]] for group in groups_of(query)}
    assert list(found.items()) == list(expected.items())


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
    assert strict(get(path).body) == {"status": "success", "data": {key: []}}
    assert strict(ask(Routes(context()), Request("GET", path)).body) == {"status": "success", "data": {key: []}}
