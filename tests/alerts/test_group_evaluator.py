"""Groups at work: order, staleness, limits, and what a failure costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.model import Phase
from alerts import rulefile
from alerts.group_evaluator import GroupEvaluator, TemplateContext
from alerts.promql import Storage, compile_query, make_labels


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


def test_a_rule_sees_what_the_rules_before_it_wrote(storage: Storage, ask: Callable[..., object]) -> None:
    rules = group("rules: [{record: a, expr: t * 2}, {record: b, expr: a * 2}]")
    put(storage, 1, x=3)
    assert rules.evaluate(storage, 1) == ((), (), ("a", "b"), 0.0)
    assert ask("b", 1) == {"__name__=b,gpu=x": 12}


def test_a_recorded_series_ends_with_its_source(storage: Storage, ask: Callable[..., object]) -> None:
    rules = group("rules: [{record: a, expr: t}]")
    put(storage, 1, x=3, y=4)
    rules.evaluate(storage, 1)
    storage.mark_stale(make_labels({"gpu": "x"}, "t"), 2)
    put(storage, 2, y=4)
    rules.evaluate(storage, 2)
    assert ask("a", 2) == {"__name__=a,gpu=y": 4}


def test_a_failed_query_leaves_alerts_and_series_as_they_are_and_is_counted(
    storage: Storage, ask: Callable[..., object]
) -> None:
    rules = group("rules: [{record: fine, expr: '1'}, {alert: Hot, expr: 't > on (rack) u', labels: {a: b}}]")
    storage.append(make_labels({"rack": "r", "gpu": "0"}, "t"), 1, 5)
    storage.append(make_labels({"rack": "r"}, "u"), 1, 1)
    assert len(rules.evaluate(storage, 1).transitions) == 1
    storage.append(make_labels({"rack": "r", "gpu": "1"}, "t"), 2, 5)
    storage.append(make_labels({"rack": "r", "gpu": "1"}, "u"), 2, 5)
    outcome = rules.evaluate(storage, 2)
    assert outcome.transitions == ()
    assert [(failure.rule, failure.group) for failure in outcome.failures] == [("Hot", "g")]
    assert rules.failures == [0, 1]
    assert [alert.phase for alert in rules.firing()] == [Phase.FIRING]
    assert ask("count(ALERTS)", 2) == {"": 1}
    assert ask("fine", 2) == {"__name__=fine": 1}


def test_a_limit_drops_all_alerts_of_the_rule(storage: Storage) -> None:
    rules = group("limit: 1, rules: [{alert: Hot, expr: t > 80}]")
    put(storage, 1, x=90)
    rules.evaluate(storage, 1)
    put(storage, 2, x=90, y=90)
    outcome = rules.evaluate(storage, 2)
    assert [failure.error for failure in outcome.failures] == ["exceeded limit of 1 with 2 alerts"]
    assert outcome.transitions == ()
    assert rules.alerts() == []


def test_a_limit_of_a_recording_rule_writes_nothing(storage: Storage, ask: Callable[..., object]) -> None:
    rules = group("limit: 1, rules: [{record: a, expr: t}]")
    put(storage, 1, x=90, y=90)
    assert rules.evaluate(storage, 1).failures[0].error == "exceeded limit of 1 with 2 series"
    assert ask("a", 1) == {}


def test_a_query_offset_moves_query_and_samples_and_not_the_alert(storage: Storage, ask: Callable[..., object]) -> None:
    rules = group("query_offset: 10s, rules: [{alert: Hot, expr: t > 80}]")
    put(storage, 90, x=90)
    put(storage, 95, x=10)
    rules.evaluate(storage, 100)
    assert rules.alerts()[0].active_at == 100
    assert ask("timestamp(ALERTS)", 91) == {"alertname=Hot,alertstate=firing,gpu=x": 90}


def test_a_text_is_not_a_result_of_a_rule(storage: Storage) -> None:
    rules = group("""rules: [{record: a, expr: '"text"'}]""")
    assert rules.evaluate(storage, 1).failures[0].error == "rule result is not a vector or scalar"


def test_a_sample_that_another_writer_has_written_costs_the_rule_and_not_the_group(storage: Storage) -> None:
    rules = group("rules: [{record: t, expr: '1', labels: {gpu: x}}, {record: b, expr: '2'}]")
    put(storage, 1, x=90)
    outcome = rules.evaluate(storage, 1)
    assert [failure.rule for failure in outcome.failures] == ["t"]
    assert rules.failures == [1, 0]


def test_a_template_that_cannot_be_rendered_says_so_in_its_place(storage: Storage) -> None:
    rules = group("""rules: [{alert: A, expr: t, annotations: {a: '{{ humanize $labels.gpu }}', b: '{{ $value }}'}}]""")
    put(storage, 1, x=90)
    rules.evaluate(storage, 1)
    (alert,) = rules.alerts()
    assert alert.annotations == {
        "a": "<error expanding template: error executing template __alert_A: template: __alert_A:1:115: executing "
        '"__alert_A" at <humanize $labels.gpu>: error calling humanize: '
        'strconv.ParseFloat: parsing "x": invalid syntax>',
        "b": "90",
    }


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
    (transition,) = outcome.transitions
    annotations = transition.alert.annotations
    assert annotations["b"] == "1"
    assert ": error calling query: " in annotations["a"]
    assert words in annotations["a"]


def test_memory_is_bounded_by_the_alerts_that_were_there_lately(storage: Storage) -> None:
    rules = group("rules: [{alert: Hot, expr: t > 80}]")
    for minute in range(60):
        storage.append(make_labels({"gpu": str(minute)}, "t"), minute * 60.0, 90)
        rules.evaluate(storage, minute * 60.0)
        storage.append(make_labels({"gpu": str(minute)}, "t"), minute * 60.0 + 1, 10)
    assert len(rules.alerts()) == 17  # one fires, and sixteen minutes' worth is remembered


@pytest.mark.parametrize(
    ("name", "alertname", "ends"),
    [("ALERTS", "Hot", True), ("ALERTS_FOR_STATE", "Hot", True), ("ALERTS", "Cold", False), ("Hot", "Hot", False),
     ("recorded", "", True), ("other", "", False)],
)  # fmt: skip
def test_after_a_restart_series_that_a_rule_of_the_group_wrote_and_no_longer_writes_end(
    storage: Storage, ask: Callable[..., object], name: str, alertname: str, ends: bool
) -> None:
    rules = group("rules: [{alert: Hot, expr: t > 80}, {record: recorded, expr: t}]")
    labels = make_labels({"gpu": "gone", **({"alertname": alertname} if alertname else {})}, name)
    storage.append(labels, 1, 1.0)
    rules.inherit([labels])
    put(storage, 2, x=3)
    rules.evaluate(storage, 2)
    assert bool(ask(f'{name}{{gpu="gone"}}', 2)) is not ends
