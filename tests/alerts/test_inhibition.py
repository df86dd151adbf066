"""Which alerts are effects of others, as Alertmanager has it."""

from __future__ import annotations

import pytest

from agent.model import Alert, GroupReport, Labels, Phase, RuleReport
from alerts.inhibition import Inhibition, InhibitRule, find_causes, mark, parse, shipped

RULES = parse("""
inhibit_rules:
- source_matchers: ['alertname="Lost"']
  target_matchers: ['alertname=~"Gpu.+|Lost"', 'severity!="none"']
  equal: [instance, gpu]
- source_matchers: ['alertname="Down"']
  target_matchers: ['alertname=~"Gpu.+"', 'alertname!~"GpuXid"']
  equal: [rack]
""")


def labels(name: str, **more: str) -> Labels:
    return tuple(sorted({"alertname": name, **more}.items()))


@pytest.mark.parametrize(
    ("source", "target", "is_inhibited"),
    [
        (labels("Lost", gpu="1"), labels("GpuHot", gpu="1"), True),
        (labels("Lost", gpu="1"), labels("GpuHot", gpu="2"), False),
        (labels("Lost", gpu="1"), labels("GpuHot"), False),
        (labels("Lost"), labels("GpuHot"), True),  # what both lack is equal
        (labels("Lost", gpu="1"), labels("GpuHot", gpu="1", severity="none"), False),
        (labels("Lost", gpu="1"), labels("Lost", gpu="1", severity="info"), False),  # both match both sides
        (labels("Lost", gpu="1"), labels("PortDown", gpu="1"), False),
        (labels("Down", gpu="1"), labels("GpuHot", gpu="2"), True),
        (labels("Down"), labels("GpuXid"), False),
        (labels("Down", rack="r1"), labels("GpuHot"), True),  # by a label that the agent adds
        (labels("Down", rack="r2"), labels("GpuHot"), False),
    ],
)
def test_an_alert_is_inhibited_by_another_with_the_same_labels(
    source: Labels, target: Labels, is_inhibited: bool
) -> None:
    found = find_causes([target, source], RULES, (("rack", "r1"),))
    assert found == ({target: source} if is_inhibited else {})


def test_one_alert_inhibits_nothing() -> None:
    assert find_causes([labels("Lost")], RULES) == {}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{}", "inhibit_rules: is missing"),
        ("inhibit_rules: [1]", r"inhibit_rules\[0\]: needs the lists"),
        ("inhibit_rules: [{source_matchers: ['a=\"b\"'], target_matchers: [], equal: []}]", r"\[0\].target_matchers"),
        ("inhibit_rules: [{source_matchers: [a], target_matchers: ['a=\"b\"'], equal: []}]", r"\[0\].source_matchers"),
    ],
)
def test_a_rule_that_is_wrong_is_named(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        parse(text)


def alert(name: str, phase: Phase = Phase.FIRING, **more: str) -> Alert:
    return Alert(name, labels(name, **more), phase, 1.0, 0.0)


def test_only_alerts_that_fire_inhibit_and_the_causes_follow_them() -> None:
    inhibition, hot = Inhibition(RULES), alert("GpuHot", gpu="1")
    inhibition.update([hot, alert("Lost", Phase.PENDING, gpu="1")])
    assert inhibition.causes == {}
    inhibition.update([hot, alert("Lost", gpu="1")])
    assert inhibition.causes.keys() == {hot.labels}
    inhibition.update([hot])
    assert inhibition.causes == {}


def test_a_report_names_the_cause_of_each_inhibited_alert() -> None:
    hot, lost = alert("GpuHot", gpu="1"), alert("Lost", gpu="1")
    rules = (RuleReport("GpuHot", True, "x", alerts=(hot,)), RuleReport("Lost", True, "x", alerts=(lost,)))
    report = GroupReport("g", "f", 1.0, rules=rules)
    assert mark(report, {}) is report
    marked = mark(report, find_causes([hot.labels, lost.labels], RULES))
    assert [each.inhibited_by for rule in marked.rules for each in rule.alerts] == ["Lost", ""]


def test_the_shipped_rules_are_read() -> None:
    rules = shipped()
    assert len(rules) > 20
    assert all(isinstance(rule, InhibitRule) and rule.source and rule.target for rule in rules)
