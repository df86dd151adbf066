"""What the rules say of a node to `coldplate check`: by its agent, or over one sample where none can be relied on."""

import json
import socket
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path

import pytest
from freezegun import freeze_time
from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.commands.check import ASIDE
from agent.commands.check.check_output import as_text, status_of
from agent.commands.check.node_check import CheckEvidence, evaluate
from agent.commands.check.node_conditions import (
    AgentAnswer,
    NodeConditions,
    OneSampleRules,
    condition_findings,
    query_agent,
)
from agent.config.schema import Config, RulesConfig
from agent.health.examination import CHECKS
from agent.lib.clock import clock
from agent.model import Alert, Frame, Layout, Node, Phase, Reading, Series, Snapshot
from agent.wiring.identity import OwnAgent
from tests.health.test_findings import changed, of
from tests.screen.agents import serving

NAMES = frozenset({*(check.name for check in CHECKS), *ASIDE})


@cache
def shipped() -> OneSampleRules:
    return OneSampleRules(Config(), Path())


def findings_of(snapshot: Snapshot, rules: OneSampleRules | None = None) -> set[tuple[str, str]]:
    found = condition_findings((rules or shipped()).evaluate(snapshot))
    return {(finding.name, finding.verdict.value) for finding in found}


def host(snapshot: Snapshot, metric: str, value: float, *labels: str) -> Snapshot:
    """The snapshot with one more reading of the node."""
    row = BY_NAME[metric]
    series = Series(row, Node(), tuple(zip(row.labels, labels, strict=True)))
    return Snapshot(
        snapshot.sequence, snapshot.at, (*snapshot.frames, Frame(Layout((series,)), (value,))), snapshot.reports
    )


@pytest.mark.parametrize(
    ("change", "rule", "verdict"),
    [
        (of("gpu_temperature_margin_celsius", 2), "GpuHot", "warning"),
        (of("gpu_row_remap_pending", 1), "GpuRowRemap", "warning"),
        (of("gpu_row_remap_failure", 1), "GpuRowRemap", "critical"),
        (of("gpu_recovery_action", 1, action="gpu_reset"), "GpuRecoveryActionNeeded", "critical"),
        (of("gpu_throttle_active", 1, reason="hw_power_brake"), "GpuPowerBrake", "critical"),
        (of("gpu_throttle_active", 1, reason="hw_thermal_slowdown"), "GpuThrottled", "critical"),
    ],
)
def test_one_sample_shows_a_fault_by_the_rule_about_it(
    look, change: Callable[[Reading], float | None], rule: str, verdict: str
) -> None:
    assert (rule, verdict) in findings_of(changed(look("healthy-training"), change))


@pytest.mark.parametrize(
    ("metric", "labels", "rule"),
    [
        ("coldplate_node_mount_up", ("/home", "lustre"), ("NodeMountDown", "warning")),
        ("coldplate_node_fabric_manager_up", (), ("FabricManagerDown", "critical")),
    ],
)
def test_one_sample_shows_a_fault_of_the_host(look, metric: str, labels: tuple[str, ...], rule: tuple[str, str]):
    assert findings_of(host(look("idle"), metric, 0, *labels)) == {rule}
    assert findings_of(host(look("idle"), metric, 1, *labels)) == {("alerts", "ok")}


def test_what_a_site_changes_in_a_rule_holds_without_an_agent_as_well(look, tmp_path: Path) -> None:
    hot = changed(look("idle"), of("gpu_temperature_margin_celsius", 2))
    assert findings_of(hot) == {("GpuHot", "warning")}
    quiet = OneSampleRules(Config(rules=RulesConfig(disable=("GpuHot",))), tmp_path)
    assert findings_of(hot, quiet) == {("alerts", "ok")}
    none = OneSampleRules(Config(rules=RulesConfig(files=())), tmp_path)
    assert findings_of(hot, none) == {("alerts", "skipped")}
    (tmp_path / "site.yml").write_text("groups: 3\n")
    broken = OneSampleRules(Config(rules=RulesConfig(files=("site.yml",))), tmp_path)
    (finding,) = condition_findings(broken.evaluate(hot))
    assert (finding.name, finding.verdict.value, "site.yml" in finding.found) == ("alerts", "unknown", True)


def test_what_an_ordinary_user_may_not_read_is_no_condition_of_the_node(look) -> None:
    """MetricsMissing is about an agent, which has what it needs; a check is run by any user."""
    denied = host(look("idle"), "coldplate_metric_missing", 1, "coldplate_gpu_xids_total", "denied")
    assert findings_of(denied) == {("alerts", "ok")}


def test_a_rule_over_minutes_says_that_it_saw_one_sample(look) -> None:
    hot = changed(look("idle"), of("gpu_throttle_active", 1, reason="hw_thermal_slowdown"))
    (finding,) = condition_findings(shipped().evaluate(hot))
    assert finding.found.startswith("by one sample: The hardware throttles GPU ")
    (finding,) = condition_findings(shipped().evaluate(host(look("idle"), "coldplate_node_fabric_manager_up", 0)))
    assert "sample" not in finding.found, "it looks at the newest one alone"
    (finding,) = condition_findings(NodeConditions([fires("GpuThrottled", "critical")]))
    assert finding.found == "GpuThrottled it is", "an agent has seen the minutes"


def test_the_note_counts_the_rules_that_one_sample_cannot_serve(look) -> None:
    note = shipped().evaluate(look("idle")).note
    back, every = (int(word) for word in note.split() if word.isdecimal())
    assert 0 < back < every


def fires(rule: str, severity: str, cause: str = "") -> Alert:
    labels = (("alertname", rule), ("severity", severity))
    return Alert(rule, labels, Phase.FIRING, 1.0, 0.0, annotations={"summary": f"{rule} it is"}, inhibited_by=cause)


@pytest.mark.parametrize(
    ("conditions", "agent", "needs", "status", "words"),
    [
        (NodeConditions([]), None, False, 0, "19 of 19"),
        (NodeConditions([fires("GpuXidInfo", "info")]), None, False, 0, "19 of 19"),
        (NodeConditions([fires("GpuHot", "warning")] * 2), None, False, 1, "WARNING GpuHot: GpuHot it is (and 1 more)"),
        (
            NodeConditions([fires("GpuHot", "warning"), fires("GpuLost", "critical")]),
            None,
            False,
            2,
            "- GpuLost: GpuLost it is;",
        ),
        (NodeConditions(reason="busy"), AgentAnswer(reason="refused"), False, 3, "UNKNOWN alerts: busy"),
        (NodeConditions([fires("GpuLost", "critical")], "behind"), None, False, 2, "UNKNOWN alerts: behind"),
        (NodeConditions([]), AgentAnswer(reason="refused"), True, 2, "agent: refused;"),
        (NodeConditions([]), AgentAnswer(reason="synthetic", answered=True), True, 3, "agent: synthetic;"),
        (NodeConditions([]), None, True, 0, "20 of 20"),
    ],
)
def test_the_conditions_count(
    look, conditions: NodeConditions, agent: AgentAnswer | None, needs: bool, status: int, words: str
) -> None:
    evidence = CheckEvidence(look("idle"), "synthetic", xids=[], conditions=conditions, agent=agent)
    made = evaluate(evidence, NAMES, None, needs_agent=needs)
    assert status_of(made) == status
    assert words in as_text(made, False)


def alert(name: str, state: str, **labels: str) -> dict[str, object]:
    document = {"state": state, "annotations": {}, "value": "1", "activeAt": "2023-11-14T22:13:20Z"}
    return {"labels": {"alertname": name, "severity": "critical", **labels}, **document}


def ask(*places: str, devices: str = "auto", seconds: float = 5.0) -> AgentAnswer:
    agent = OwnAgent(tuple(f"http://{place}" for place in places), {})
    return query_agent(agent, devices, clock().mono + seconds)


def page(*alerts: dict[str, object], **about: str) -> bytes:
    return json.dumps({"status": "success", "data": {"alerts": alerts, **about}}).encode()


FUTURE, PAST, NEVER = "2999-01-01T00:00:00Z", "2023-11-14T22:13:20Z", "0001-01-01T00:00:00Z"


def test_the_agent_is_asked_at_its_address_and_nonsense_is_not_believed() -> None:
    alerts = [
        alert("GpuLost", "firing"),
        alert("GpuHot", "pending"),
        {**alert("GpuXid", "firing"), "inhibitedBy": "GpuLost"},
        alert("RackPowerHigh", "firing", rack="r12"),
    ]
    answer = page(*alerts, nextEvaluation=FUTURE)
    with serving(lambda _: (200, answer)) as well, serving(lambda _: (200, b"[]")) as raving:
        assert [each.rule for each in ask(well).firing or ()] == ["GpuLost"]
        assert ask(raving).firing is None
        assert [each.rule for each in ask(raving, well).firing or ()] == ["GpuLost"]
    for status, body in ((200, b""), (503, b'{"data": {"alerts": []}}')):
        with serving(lambda _, answer=(status, body): answer) as place:
            assert ask(place).firing is None
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        silent = ask(f"127.0.0.1:{hanging.getsockname()[1]}", seconds=0.1)
    assert (silent.firing, silent.answered, "no response" in silent.reason) == (None, False, True)


@pytest.mark.parametrize(
    ("answer", "devices", "why"),
    [
        (page(nextEvaluation=FUTURE, devices="synthetic"), "auto", "has synthetic devices"),
        (page(nextEvaluation=FUTURE, devices="replayed"), "nvml", "has replayed devices"),
        (page(nextEvaluation=FUTURE), "synthetic", "has real devices"),
        (page(nextEvaluation=FUTURE, devices="replayed"), "replay", ""),
        (page(nextEvaluation=FUTURE), "auto", ""),
        (page(), "auto", "no rules are evaluated"),
        (page(nextEvaluation=NEVER), "auto", "not all rules have been evaluated yet"),
        (page(nextEvaluation=PAST), "auto", "s behind"),
    ],
)
def test_an_agent_that_judges_other_devices_or_not_yet_is_not_believed(answer: bytes, devices: str, why: str) -> None:
    """A demonstration on a node must not drain it, and one that has just begun must not make it fit for a job."""
    with serving(lambda _: (200, answer)) as place:
        found = ask(place, devices=devices)
    assert (found.firing is None, found.answered, why in found.reason) == (bool(why), True, True)


@pytest.mark.parametrize(("seconds_late", "is_believed"), [(-10, True), (59, True), (61, False)])
def test_an_agent_whose_rules_are_a_minute_behind_is_not_believed(seconds_late: int, is_believed: bool) -> None:
    due = datetime(2026, 1, 1, 12, 0, 0, tzinfo=timezone.utc)
    answer = page(alert("GpuLost", "firing"), nextEvaluation="2026-01-01T12:00:00Z")
    with serving(lambda _: (200, answer)) as place, freeze_time(due + timedelta(seconds=seconds_late), tick=True):
        assert (ask(place).firing is not None) is is_believed


def test_a_check_beside_a_demonstration_says_so_and_judges_by_its_own_sample(look) -> None:
    from agent.commands.check.node_check import _with_conditions

    evidence = CheckEvidence(look("idle"), "nvml", xids=[])
    foreign = AgentAnswer(reason="http://127.0.0.1:19400: the agent has synthetic devices", answered=True)
    judged = _with_conditions(evidence, foreign, shipped())
    assert judged.conditions is not None and judged.conditions.firing == []
    assert "synthetic devices; one sample" in judged.conditions.note
    busy = _with_conditions(replace(evidence, is_whole=False, waited=0.1), foreign, shipped())
    assert busy.conditions is not None and busy.conditions.firing is None
