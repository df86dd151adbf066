"""Our answers beside those of a real Prometheus that evaluates the same rule file."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.model import GroupReport
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import Storage
from alerts.rulefile import load
from exporters.http_messages import Request
from exporters.routes import Routes
from tests.asking import ask as told
from tests.asking import context
from tests.servers import need, prometheus

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


def ask(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def evaluated(url: str) -> bool:
    """Whether the first group has been evaluated to its end."""
    try:
        status, answer = ask(f"{url}/api/v1/rules?type=alert")
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
        for _ in range(200):
            if evaluated(url):
                break
            time.sleep(0.05)
        else:
            pytest.fail((rule_folder / "prometheus.log").read_text())
        yield lambda path: ask(url + path)


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
        response = told(site, Request("GET", path, query))
        return int(response.status), json.loads(response.body)

    return answer


def comparable(value: Any, key: str = "") -> Any:
    """An answer with times and known differences replaced by their types, and alerts, which have no order, in one."""
    if isinstance(value, dict):
        return {name: comparable(each, name) for name, each in value.items()}
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
        "/api/v1/alerts", "/api/v1/rules", "/api/v1/rules?type=alert", "/api/v1/rules?type=record",
        "/api/v1/rules?type=x",
    ],
)  # fmt: skip
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
