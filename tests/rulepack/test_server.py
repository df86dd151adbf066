"""Node and server say the same of each shipped alert: labels, annotations and times, byte for byte.

The samples are those of the pack's unit tests. The node evaluates the rules as the daemon does, over windows that keep
what some rule is seen to read; what it says at many instants is written down as a unit test, and the newest promtool is
the judge of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent import cli
from agent.backends.synthetic.loader import SHIPPED
from alerts import durations
from alerts.changes import ANNOTATION as CHANGES
from alerts.group_evaluator import GroupEvaluator, TemplateContext
from alerts.promql.labels import Labels
from alerts.rulefile import AlertingRule, RuleFile
from alerts.unittests import unit_test_file
from alerts.unittests.runner import Given
from alerts.unittests.unit_test_file import Test
from alerts.windows import Needs, Windows
from tests.rack.conftest import Daemon
from tests.rulepack.conftest import rules_of
from tests.servers import fetch, free_ports, need_recent, prometheus
from tests.waiting import wait_until

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


NODES = ("node7", "node8")
ONSET = "12s"
"""By then the server has scraped both nodes, also on a machine that is busy."""

FAULTY = Path(__file__).with_name("live.scenario.yaml").read_text()
STEADY = {
    "GpuLost", "GpuPcieDegraded", "GpuRecoveryActionNeeded", "GpuRowRemap",
    "GpuXid", "GpuXidUnknown", "InfinibandRateDegraded", "InfinibandPortDown",
    "NvLinkDown",
}  # fmt: skip
MOVING = {"GpuThrottled", "GpuImbalance", "GpuHot", "GpuPowerBrake"}
"""Alerts whose value is a mean or a share of time, which goes on moving."""
HELD = sorted(
    name for name in STEADY | MOVING if name not in ("GpuLost", "GpuPowerBrake") and not name.startswith("GpuXid")
)
"""Alerts that wait for some time before they fire, which is short here. `GpuLost` keeps its 5 seconds."""
CONFIG = """
node: {{name: {name}, cluster: east}}
sampling: {{fast: 1s, slow: 2s, cold: 4s, window: 10s}}
backends: {{host: false}}
rules: {{files: [{rules}], override: {{{overrides}}}}}
"""
SERVER = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s, external_labels: {{cluster: east}}}}
rule_files: ["{rules}/*.yml"]
scrape_configs: [{{job_name: coldplate, static_configs: [{targets}]}}]
"""
APART = 4.0
"""Seconds by which the two may see an onset apart; less than the holds, which an alert's beginning must not contain.

A server sees a sample up to a second later, when it scrapes, and evaluates up to a second after that, while the node
tells a time half a second before its own evaluation. A mean may need one sample more.
"""


class ToldAlert(NamedTuple):
    state: str
    annotations: dict[str, str]
    value: str
    active_at: float


Alerts = dict[tuple[tuple[str, str], ...], ToldAlert]


def alerts_at(url: str) -> Alerts:
    found = json.loads(fetch(f"{url}/api/v1/alerts"))["data"]["alerts"]
    made = {
        tuple(sorted(each["labels"].items())):
            ToldAlert(each["state"], each["annotations"], each["value"], seconds(each["activeAt"]))
        for each in found
    }  # fmt: skip
    assert len(made) == len(found), "no two alerts of one answer have the same labels"
    return made


def seconds(text: str) -> float:
    """A time of the API; whoever writes nanoseconds tells more than a datetime holds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z$", r"\1Z", text).replace("Z", "+00:00")).timestamp()


def rendered(folder: Path) -> Path:
    """The pack with short holds as the agent renders it, evaluated each second."""
    overrides = ", ".join(f"{name}: {{for: 6s}}" for name in HELD)
    config = folder / "render.yaml"
    config.write_text(CONFIG.format(name="any", rules="builtin", overrides=overrides))
    rules = folder / "rules"
    assert cli.main(["render", "rules", "--config.file", str(config), "--output", str(rules)]) == 0
    for path in rules.glob("*.yml"):
        path.write_text(re.sub(r"\binterval: \w+", "interval: 1s", path.read_text()))
    return rules


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The addresses of a server, and of the nodes that it scrapes."""
    program = need_recent("NOTHING compares the alerts of a live node with those of a live server here").prometheus
    folder = tmp_path_factory.mktemp("live")
    rules = rendered(folder)
    stall = re.sub(r"at: \d+s", f"at: {ONSET}", (SHIPPED / "checkpoint-stall.yaml").read_text())
    with ExitStack() as stack:
        nodes = []
        for name, port, scenario in zip(NODES, free_ports(len(NODES)), (stall, FAULTY), strict=True):
            path = folder / f"{name}.scenario.yaml"
            path.write_text(scenario)
            config = CONFIG.format(name=name, rules=f'"{rules}/*.yml"', overrides="")
            nodes.append((name, port, Daemon(port, folder, config, "--scenario", str(path))))
            stack.callback(nodes[-1][2].stop)
        targets = ", ".join(
            f"{{targets: ['127.0.0.1:{port}'], labels: {{instance: '{name}:{port}'}}}}" for name, port, _ in nodes
        )
        config = SERVER.format(rules=rules, targets=targets)
        server = stack.enter_context(prometheus(config, folder, program))
        for _, _, node in nodes:
            wait_until(lambda node=node: "msg=serving" in node.log.read_text(), 60)
        yield server, [node.url for _, _, node in nodes]


@pytest.fixture(scope="module")
def told(rig: tuple[str, list[str]]) -> tuple[Alerts, Alerts]:
    """What server and nodes say, at the first look at which all fires that shall and both list the same."""
    server, nodes = rig
    deadline = time.monotonic() + 90
    while True:
        by_server = alerts_at(server)
        by_nodes = {labels: told for node in nodes for labels, told in alerts_at(node).items()}
        if states(by_server) == states(by_nodes) and firing(by_server) >= STEADY | MOVING:
            return by_server, by_nodes
        if time.monotonic() > deadline:
            pytest.fail(f"the server and the nodes do not agree:\n{listed(by_server)}\nand\n{listed(by_nodes)}")
        time.sleep(0.5)


def states(alerts: Alerts) -> dict[tuple[tuple[str, str], ...], str]:
    return {labels: told.state for labels, told in alerts.items()}


def firing(alerts: Alerts) -> set[str]:
    return {name_of(labels) for labels, told in alerts.items() if told.state == "firing"}


def name_of(labels: tuple[tuple[str, str], ...]) -> str:
    return dict(labels)["alertname"]


def listed(alerts: Alerts) -> str:
    return "\n".join(f"{told.state} {dict(labels)}" for labels, told in sorted(alerts.items()))


def still(text: str, name: str) -> str:
    return text if name in STEADY else re.sub(r"\d+(\.\d+)?(?=%| °C| W)", "N", text)


def test_server_and_nodes_say_the_same_of_each_alert(told: tuple[Alerts, Alerts]) -> None:
    """Texts, but for what else changed, which only a node knows; values that stand still; and when each began."""
    by_server, by_nodes = told
    seen = 0
    for labels, node in by_nodes.items():
        server, name = by_server[labels], name_of(labels)
        assert (CHANGES in server.annotations, CHANGES in node.annotations) == (False, node.state == "firing")
        texts = [
            {key: still(text, name) for key, text in each.annotations.items() if key != CHANGES}
            for each in (server, node)
        ]
        assert texts[0] == texts[1]
        if name in STEADY:
            assert server.value == node.value, labels
        if name in STEADY | MOVING:
            seen += 1
            assert abs(node.active_at - server.active_at) <= APART, labels
    assert seen >= len(STEADY | MOVING)
