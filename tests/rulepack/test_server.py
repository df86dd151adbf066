"""Node and server say the same of each shipped alert: labels, annotations and times, byte for byte.

The samples are those of the pack's unit tests. The node evaluates the rules as the daemon does, over windows that keep
what some rule is seen to read; what it says at many instants is written down as a unit test, and the newest promtool is
the judge of it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts import durations
from alerts.group_evaluator import GroupEvaluator, TemplateContext
from alerts.promql.labels import Labels
from alerts.rulefile import AlertingRule, RuleFile
from alerts.unittests import unit_test_file
from alerts.unittests.runner import Given
from alerts.unittests.unit_test_file import Test
from alerts.windows import Needs, Windows
from tests.rulepack.conftest import rules_of
from tests.servers import need_recent

pytestmark = pytest.mark.release
"""It needs the newest promtool, and much time."""

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
EXTERNAL = {"cluster": "east"}
URL = "http://node7:19400"
STRIDE = 40
"""Evaluations after which all is compared, beside those at which some alert began, changed or ended."""

Told = dict[str, list[tuple[dict[str, str], dict[str, str], str, float]]]
"""By the alert's name: labels, annotations, phase, and since when it is active."""


@pytest.fixture(scope="module")
def promtool() -> str:
    return need_recent("NOTHING compares the alerts of a node with those of a server here").promtool


class Agent:
    """The rules of some files at work over windows, fed with the series of a unit test."""

    def __init__(self, rules: list[RuleFile], test: Test, interval: float) -> None:
        self._test = test
        groups = [group for file in rules for group in file.groups]
        self._windows = Windows(Needs(groups), (), interval)
        self._groups = [GroupEvaluator(each, TemplateContext(EXTERNAL, URL)) for each in groups]
        self._interval = interval
        self._given = Given(test, self._windows)

    def instants(self) -> Iterator[tuple[float, Told]]:
        """The instants worth a look, and what there is to see."""
        before = None
        asked = {self._step(case.at) for case in self._test.alerts}
        for step in range(round(self._test.end / self._interval) + 1):
            at = step * self._interval
            self._given.append_until(at)
            self._windows.take((), at)
            for group in self._groups:
                assert not group.evaluate(self._windows, at).failures
            told = self._told()
            signature = {(name, str(labels), phase) for name in told for labels, _, phase, _ in told[name]}
            if signature != before or step in asked or step % STRIDE == 0:
                yield at, told
            before = signature

    def _step(self, at: float) -> int:
        return int(round(at * 1000) // round(self._interval * 1000))

    def _told(self) -> Told:
        found: Told = {}
        for group in self._groups:
            for alert in group.alerts():
                if alert.phase.value != "resolved":
                    labels = {name: text for name, text in alert.labels if name != "alertname"}
                    told = (labels, dict(alert.annotations), alert.phase.value, alert.active_at)
                    found.setdefault(alert.rule, []).append(told)
        return found


def cases_of(at: float, told: Told, names: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What promtool shall find at an instant: alerts that fire, and the series of all that are active."""
    when = durations.show(at)
    alerts = [
        {"eval_time": when, "alertname": name, "exp_alerts": [
            {"exp_labels": labels, "exp_annotations": texts}
            for labels, texts, phase, _ in told.get(name, ()) if phase == "firing"]}
        for name in names
    ]  # fmt: skip
    active = [
        ({"alertname": name, **labels}, phase, since) for name, each in told.items() for labels, _, phase, since in each
    ]
    states = [(selector("ALERTS", {**labels, "alertstate": phase}), 1.0) for labels, phase, _ in active]
    since = [(selector("ALERTS_FOR_STATE", labels), float(int(begun))) for labels, _, begun in active]
    own = f'{{alertname=~"{"|".join(names)}"}}'  # a test may give alerts of other files
    queries = [
        {
            "eval_time": when,
            "expr": expr + own,
            "exp_samples": [{"labels": text, "value": value} for text, value in samples],
        }
        for expr, samples in (("ALERTS", states), ("ALERTS_FOR_STATE", since))
    ]
    return alerts, queries


def selector(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}"


def series_of(labels: Labels, samples: Any, interval: float) -> dict[str, str]:
    pairs = {name: value for name, value in labels if name != "__name__"}
    return {"series": selector(dict(labels)["__name__"], pairs), "values": " ".join(map(notated, samples))}


def notated(value: float | None) -> str:
    if value is None:
        return "_"
    if value != value:
        return "stale"
    return repr(value).replace("inf", "Inf")


@pytest.mark.parametrize("path", CASES, ids=[path.name.partition(".")[0] for path in CASES])
def test_a_server_says_of_each_alert_what_the_node_says(
    path: Path, pack: list[RuleFile], promtool: str, tmp_path: Path
) -> None:
    given = unit_test_file.load(path)
    sources = {source.name for source in given.rule_files}
    rules = [file for file in pack if Path(file.path).name in sources]
    names = sorted({rule.name for rule in rules_of(rules, AlertingRule)})
    fired: set[str] = set()
    tests = []
    for test in given.tests:
        alerts: list[dict[str, Any]] = []
        queries: list[dict[str, Any]] = []
        for at, told in Agent(rules, test, given.interval).instants():
            fired.update(name for name, each in told.items() if any(phase == "firing" for _, _, phase, _ in each))
            for gathered, more in zip((alerts, queries), cases_of(at, told, names), strict=True):
                gathered.extend(more)
        tests.append({
            "interval": durations.show(test.interval), "external_labels": EXTERNAL, "external_url": URL,
            "input_series": [series_of(labels, samples, test.interval) for labels, samples in test.series],
            "alert_rule_test": alerts, "promql_expr_test": queries,
        })  # fmt: skip
    assert fired
    judged = {
        "rule_files": [file.path for file in rules],
        "evaluation_interval": durations.show(given.interval),
        "tests": tests,
    }
    file = tmp_path / "node.test.yml"
    file.write_text(json.dumps(judged))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, re.sub(r"\n\s*\n", "\n", done.stdout + done.stderr)[:6000]
