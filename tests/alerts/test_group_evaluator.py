"""Groups at work, the life of an alert, and which alert inhibits another."""

from collections.abc import Callable, Collection

import pytest
import yaml

from agent.model import Alert, GroupReport, Labels, Phase, RuleReport
from alerts import rulefile
from alerts.group_evaluator import GroupEvaluator
from alerts.inhibition import AFTERMATH_SECONDS, FILE, Inhibition, find_causes, mark, parse, shipped
from alerts.lifecycle import AlertRecord
from alerts.promql import Storage, compile_query, make_labels
from alerts.rule_evaluator import TemplateContext


def group(text: str, **context: object) -> GroupEvaluator:
    (rules,) = rulefile.parse(f"groups: [{{name: g, {text}}}]", "f.yml").groups
    return GroupEvaluator(rules, TemplateContext(**context))  # type: ignore[arg-type]


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def ask(storage: Storage) -> Callable[[str, float], dict[str, float]]:
    """The labels of each series that a query gives, written short, with its value."""

    def asked(text: str, at: float) -> dict[str, float]:
        found = compile_query(text).evaluate(storage, at)
        assert isinstance(found, list)
        return {",".join(f"{name}={value}" for name, value in each.labels): each.value for each in found}

    return asked


def put(storage: Storage, at: float, **values: float) -> None:
    for gpu, value in values.items():
        storage.append(make_labels({"gpu": gpu}, "t"), at, value)


def test_beyond_its_limit_a_rule_has_no_alert_and_writes_nothing(storage: Storage, ask: Callable[..., object]) -> None:
    rules = group("limit: 1, rules: [{alert: Hot, expr: t > 80}]")
    put(storage, 1, x=90)
    rules.evaluate(storage, 1)
    put(storage, 2, x=90, y=90)
    outcome = rules.evaluate(storage, 2)
    assert [failure.error for failure in outcome.failures] == ["exceeded limit of 1 with 2 alerts"]
    assert outcome.transitions == ()
    assert rules.alerts() == []
    recording = group("limit: 1, rules: [{record: a, expr: t}]")
    assert recording.evaluate(storage, 2).failures[0].error == "exceeded limit of 1 with 2 series"
    assert ask("a", 2) == {}


def test_a_query_offset_moves_query_and_samples_and_not_the_alert(storage: Storage, ask: Callable[..., object]) -> None:
    rules = group("query_offset: 10s, rules: [{alert: Hot, expr: t > 80}]")
    put(storage, 90, x=90)
    put(storage, 95, x=10)
    rules.evaluate(storage, 100)
    assert rules.alerts()[0].active_at == 100
    assert ask("timestamp(ALERTS)", 91) == {"alertname=Hot,alertstate=firing,gpu=x": 90}


def test_a_sample_that_another_writer_has_written_costs_the_rule_and_not_the_group(storage: Storage) -> None:
    rules = group("rules: [{record: t, expr: '1', labels: {gpu: x}}, {record: b, expr: '2'}]")
    put(storage, 1, x=90)
    outcome = rules.evaluate(storage, 1)
    assert [failure.rule for failure in outcome.failures] == ["t"]


@pytest.mark.parametrize(
    ("query", "value", "words"),
    [
        ('"' + "(" * 999 + '"', 1, "nested more than 100 levels"),
        ('"' + "1+" * 3000 + '1"', 1, "its text has 6001 characters; the limit is 4096"),
        ('"up offset 300y"', 1, "duration out of range"),
        ('"\\"\\\\xff\\""', 1, "rule result is not a vector or scalar"),
        ('printf "x{a=~%q}" "("', 1, "regular expression"),
        ('"x * on() t"', 1, "multiple matches for labels"),
        ('"t[5m]"', 1, "rule result is not a vector or scalar"),
    ],
)
def test_a_query_of_a_template_that_fails_affects_only_its_annotation(
    storage: Storage, query: str, value: float, words: str
) -> None:
    rules = group(
        f"rules: [{{alert: Hot, expr: t, annotations: {{a: '{{{{ {query} | query }}}}', b: '{{{{ 1 }}}}'}}}}]"
    )
    put(storage, 1, x=value)
    for gpu in "yz":
        storage.append(make_labels({"gpu": gpu}, "x"), 1, 1.0)
    outcome = rules.evaluate(storage, 1)
    assert outcome.failures == ()
    (alert,) = outcome.transitions
    annotations = alert.annotations
    assert annotations["b"] == "1"
    assert annotations["a"].startswith("<error expanding template: error executing template __alert_Hot: ")
    assert ": error calling query: " in annotations["a"]
    assert words in annotations["a"]


@pytest.mark.parametrize(
    ("name", "alertname", "ends"),
    [("ALERTS", "Hot", True), ("ALERTS_FOR_STATE", "Hot", True), ("ALERTS", "Cold", False), ("Hot", "Hot", False),
     ("recorded", "", True), ("other", "", False)],
)  # fmt: skip
def test_after_a_restart_series_end_that_their_rule_no_longer_writes(
    storage: Storage, ask: Callable[..., object], name: str, alertname: str, ends: bool
) -> None:
    rules = group("rules: [{alert: Hot, expr: t > 80}, {record: recorded, expr: t}]")
    labels = make_labels({"gpu": "gone", **({"alertname": alertname} if alertname else {})}, name)
    storage.append(labels, 1, 1.0)
    rules.inherit([labels])
    put(storage, 2, x=3)
    rules.evaluate(storage, 2)
    assert bool(ask(f'{name}{{gpu="gone"}}', 2)) is not ends


@pytest.mark.parametrize("keep", ["", "keep_firing_for: 300ms, "])
def test_fractions_of_seconds_do_not_delay_by_rounding(storage: Storage, keep: str) -> None:
    """0.7 - 0.4 is less than 0.3 in binary."""
    rules = group(f"rules: [{{alert: Hot, {keep}for: 300ms, expr: t > 80}}]")
    seen: list[Phase] = []
    for tenth in range(10):
        at = (4 + tenth) / 10
        put(storage, at, x=10 if 5 <= tenth < 9 else 90)
        seen += [each.phase for each in rules.evaluate(storage, at).transitions]
        assert (Phase.FIRING in seen) == (tenth >= 3)
        assert (Phase.RESOLVED in seen) == (tenth >= (8 if keep else 5))
    assert seen == [Phase.PENDING, Phase.FIRING, Phase.RESOLVED, Phase.PENDING], "a new incident"


RULES = parse("""
inhibit_rules:
- source_matchers: ['alertname="Lost"']
  target_matchers: ['alertname=~"Gpu.+|Lost"', 'severity!="none"']
  equal: [instance, gpu]
- source_matchers: ['alertname="GpuEcc"', 'severity="critical"']
  target_matchers: ['alertname="GpuEcc"', 'severity="warning"']
  equal: [gpu]
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


def alert(name: str, phase: Phase = Phase.FIRING, **more: str) -> Alert:
    return Alert(name, labels(name, **more), phase, 1.0, 0.0)


def update(inhibition: Inhibition, mono: float, *alerts: Alert, lapsed: Collection[Alert] = ()) -> set[Labels]:
    """The labels of what is inhibited after a round; the condition of `lapsed` alerts does not hold, and they last."""
    records = [AlertRecord(each) for each in alerts] + [AlertRecord(each, mono) for each in lapsed]
    inhibition.update(records, mono)
    return set(inhibition.causes)


HOT, LOST = alert("GpuHot", gpu="1"), alert("Lost", gpu="1")


def test_only_alerts_that_fire_inhibit_and_those_of_before_are_free_after_it() -> None:
    inhibition = Inhibition(RULES)
    assert update(inhibition, 0.0, HOT, alert("Lost", Phase.PENDING, gpu="1")) == set()
    assert update(inhibition, 1.0, HOT, LOST) == {HOT.labels}
    assert update(inhibition, 2.0, HOT) == set()


def test_an_effect_is_no_news_after_its_cause_as_long_as_it_only_lasts() -> None:
    inhibition = Inhibition(RULES)
    assert update(inhibition, 0.0, HOT, LOST) == {HOT.labels}
    for mono in (10.0, AFTERMATH_SECONDS, 20 * AFTERMATH_SECONDS):
        assert update(inhibition, mono, lapsed=[HOT]) == {HOT.labels}
    assert update(inhibition, 9000.0) == set()
    assert update(inhibition, 9001.0, HOT) == set(), "another incident, of its own"


def test_an_effect_whose_condition_begins_anew_after_its_cause_is_news() -> None:
    inhibition = Inhibition(RULES)
    update(inhibition, 0.0, HOT, LOST)
    assert update(inhibition, 1.0, LOST, lapsed=[HOT]) == update(inhibition, 2.0, LOST, HOT) == {HOT.labels}
    assert update(inhibition, 3.0, lapsed=[HOT]) == {HOT.labels}
    assert update(inhibition, 4.0, HOT) == set()


def test_an_effect_whose_condition_outlives_its_cause_for_minutes_is_news() -> None:
    inhibition = Inhibition(RULES)
    update(inhibition, 0.0, HOT, LOST)
    assert update(inhibition, 1000.0, HOT) == update(inhibition, 999.0 + AFTERMATH_SECONDS, HOT) == {HOT.labels}
    assert update(inhibition, 1000.0 + AFTERMATH_SECONDS, HOT) == set()
    inhibition = Inhibition(RULES)  # a cause that returns counts from its last end
    update(inhibition, 0.0, HOT, LOST)
    update(inhibition, 1000.0, HOT)
    update(inhibition, 1100.0, HOT, LOST)
    assert update(inhibition, 1000.0 + AFTERMATH_SECONDS, HOT) == {HOT.labels}


def test_a_lower_level_is_news_when_the_higher_one_ends_unless_it_only_lasts() -> None:
    high, low = (alert("GpuEcc", gpu="1", severity=each) for each in ("critical", "warning"))
    inhibition = Inhibition(RULES)
    assert update(inhibition, 0.0, high, low) == {low.labels}
    assert update(inhibition, 1.0, low) == set()
    inhibition = Inhibition(RULES)
    update(inhibition, 0.0, high, low)
    assert update(inhibition, 1.0, lapsed=[low]) == {low.labels}
    assert update(inhibition, 2.0, low) == set()


def test_a_later_run_knows_what_was_an_effect_and_what_was_not() -> None:
    before, records = Inhibition(RULES), [AlertRecord(HOT, 5.0)]
    update(before, 0.0, HOT, LOST)
    update(before, 5.0, lapsed=[HOT])
    again = Inhibition(RULES)
    again.resume(records, before.effects)
    assert update(again, 10.0, lapsed=[HOT]) == {HOT.labels}
    again = Inhibition(RULES)
    again.resume([AlertRecord(HOT), AlertRecord(LOST)], {})
    assert update(again, 10.0, HOT, LOST) == {HOT.labels} and again.effects == {}
    assert update(again, 11.0, HOT) == set()


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
    written = yaml.safe_load(FILE.read_text())["inhibit_rules"]
    for rule, each in zip(rules, written, strict=True):
        assert [f'{one.name}{one.operator}"{one.value}"' for one in rule.source] == each["source_matchers"]
        assert [f'{one.name}{one.operator}"{one.value}"' for one in rule.target] == each["target_matchers"]
        assert rule.source and rule.target
        assert set(each) == {"source_matchers", "target_matchers", "equal"}
