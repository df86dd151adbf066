"""The same files through promtool and through coldplate: the same verdicts, case by case, and the same exit status."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers import need, version_of

DATA = Path(__file__).parent / "data"
PASSING = sorted(DATA.glob("*.test.yml"))
FAILING = sorted(DATA.glob("*.failing.yml"))


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


@pytest.mark.parametrize("path", PASSING, ids=names(PASSING))
def test_both_pass_what_is_right(path: Path, promtool: Any, coldplate: Any) -> None:
    for judge in (promtool, coldplate):
        verdict = judge("test", path)
        assert verdict.status == 0, verdict.text


@pytest.mark.parametrize("path", FAILING, ids=names(FAILING))
def test_both_fail_where_a_rule_cannot_be_evaluated_and_for_the_same_reason(
    path: Path, promtool: Any, coldplate: Any
) -> None:
    theirs, ours = promtool("test", path), coldplate("test", path)
    assert (theirs.status, ours.status) == (1, 1)
    assert ours.failed == theirs.failed != []
    reason = theirs.text.split("err: ")[1].splitlines()[0]
    assert reason in ours.text


def cases(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for test in document["tests"]:
        yield from test.get("alert_rule_test", ())


def expect_nothing(document: dict[str, Any]) -> None:
    for case in cases(document):
        case["exp_alerts"] = []


def expect_one_more(document: dict[str, Any]) -> None:
    for case in cases(document):
        case.setdefault("exp_alerts", []).append({"exp_labels": {"gpu": "made up"}})


def expect_another_label(document: dict[str, Any]) -> None:
    for case in cases(document):
        for alert in case.get("exp_alerts", ()):
            alert.setdefault("exp_labels", {})["severity"] = "made up"


def expect_another_annotation(document: dict[str, Any]) -> None:
    for case in cases(document):
        for alert in case.get("exp_alerts", ()):
            alert.setdefault("exp_annotations", {})["summary"] = "made up"


def ask_earlier(document: dict[str, Any]) -> None:
    for case in cases(document):
        case["eval_time"] = "15s"


def expect_other_samples(document: dict[str, Any]) -> None:
    for test in document["tests"]:
        for case in test.get("promql_expr_test", ()):
            case["exp_samples"] = [{"labels": 'made_up{a="b"}', "value": 1.5}]
    expect_nothing(document)


def lose_a_series(document: dict[str, Any]) -> None:
    for test in document["tests"]:
        test["input_series"].pop()


def misspell_a_series(document: dict[str, Any]) -> None:
    document["tests"][0]["input_series"][0]["values"] = "1 2 NaNx3"


def misspell_a_key(document: dict[str, Any]) -> None:
    document["tests"][0]["alert_rule_tests"] = document["tests"][0].pop("alert_rule_test")


def misspell_a_duration(document: dict[str, Any]) -> None:
    document["tests"][0]["interval"] = "15 seconds"


def name_no_alert(document: dict[str, Any]) -> None:
    next(cases(document)).pop("alertname")


def ask_a_broken_query(document: dict[str, Any]) -> None:
    document["tests"][0].setdefault("promql_expr_test", []).append({"expr": "sum by", "eval_time": "1m"})


def repeat_a_group(document: dict[str, Any]) -> None:
    document["group_eval_order"] = ["x", "x"]


BREAKS = [
    expect_nothing,
    expect_one_more,
    expect_another_label,
    expect_another_annotation,
    ask_earlier,
    expect_other_samples,
    lose_a_series,
    misspell_a_series,
    misspell_a_key,
    misspell_a_duration,
    name_no_alert,
    ask_a_broken_query,
    repeat_a_group,
]


COPIES = [(path, each) for path in PASSING for each in BREAKS if "detectors" not in path.name or each is expect_nothing]


@pytest.mark.parametrize(("path", "broken"), COPIES, ids=[f"{path.name}-{each.__name__}" for path, each in COPIES])
def test_both_fail_the_same_cases_of_a_broken_copy(
    path: Path, broken: Any, tmp_path: Path, promtool: Any, coldplate: Any
) -> None:
    document = copy.deepcopy(yaml.safe_load(path.read_text()))
    document["rule_files"] = [str(DATA / name) for name in document["rule_files"]]
    broken(document)
    copied = tmp_path / "broken.yml"
    copied.write_text(yaml.safe_dump(document, sort_keys=False))
    theirs, ours = promtool("test", copied), coldplate("test", copied)
    assert theirs.status == 1, theirs.text
    assert ours.status == 1, ours.text
    assert ours.failed == theirs.failed


GOOD_RULES = {
    "nothing": "",
    "no groups": "groups: []",
    "a group without rules": "groups: [{name: g}]",
    "json": '{"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0", "labels": {"n": 1, "b": true}}]}]}',
    "all keys": "groups: [{name: g, interval: 1m30s, limit: 3, rules: [{alert: A, expr: up, for: 0, "
    "keep_firing_for: 1d2h, labels: {a: b}, annotations: {c: '{{ $value }}'}}, "
    "{record: 'a:b', expr: up, labels: {a: null}}]}]",
    "anchors": "groups: [{name: g, rules: [{alert: A, expr: up, labels: &l {a: b}}, {alert: B, expr: u, labels: *l}]}]",
    "one alert in two severities": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {s: a}}, "
    "{alert: A, expr: up, labels: {s: b}}]}]",
    "the same group name in another file is no matter": "groups: [{name: g, rules: []}, {name: h, rules: []}]",
}

BAD_RULES = {
    "unknown top key": "group: []",
    "unknown group key": "groups: [{name: g, intervall: 1m}]",
    "unknown rule key": "groups: [{name: g, rules: [{alert: A, expr: up, fro: 1m}]}]",
    "a key twice": "groups: [{name: g, name: h}]",
    "no name": "groups: [{rules: []}]",
    "a name twice": "groups: [{name: g}, {name: g}]",
    "a list that is none": "groups: {name: g}",
    "a rule that is none": "groups: [{name: g, rules: [up]}]",
    "bad duration": "groups: [{name: g, rules: [{alert: A, expr: up, for: 5}]}]",
    "fractional duration": "groups: [{name: g, interval: 1.5m}]",
    "bad limit": "groups: [{name: g, limit: many}]",
    "both": "groups: [{name: g, rules: [{alert: A, record: b, expr: up}]}]",
    "neither": "groups: [{name: g, rules: [{expr: up}]}]",
    "no expression": "groups: [{name: g, rules: [{alert: A}]}]",
    "bad expression": "groups: [{name: g, rules: [{alert: A, expr: up ==}]}]",
    "unknown function": "groups: [{name: g, rules: [{alert: A, expr: ratee(up[5m])}]}]",
    "for in a recording rule": "groups: [{name: g, rules: [{record: a, expr: up, for: 1m}]}]",
    "annotations in a recording rule": "groups: [{name: g, rules: [{record: a, expr: up, annotations: {a: b}}]}]",
    "bad metric name": "groups: [{name: g, rules: [{record: a-b, expr: up}]}]",
    "bad label name": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a-b: c}}]}]",
    "reserved label name": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {__name__: c}}]}]",
    "bad annotation name": "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a-b: c}}]}]",
    "bad template": "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a: '{{ $labls.x }}'}}]}]",
    "unclosed template": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a: '{{ $value'}}]}]",
    "no yaml": "groups: [",
}


@pytest.mark.parametrize("text", GOOD_RULES.values(), ids=GOOD_RULES)
def test_both_load_what_is_right(text: str, tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    path = tmp_path / "r.yml"
    path.write_text(text)
    theirs, ours = promtool("check", path), coldplate("check", path)
    assert theirs.status == 0, theirs.text
    assert ours.status == 0, ours.text
    assert "SUCCESS: " in theirs.text
    assert theirs.text.split("SUCCESS")[1].split("\n")[0] == ours.text.split("SUCCESS")[1].split("\n")[0]


NAMES_OF_ANY_LETTERS = {"bad metric name", "bad label name", "bad annotation name"}
"""What Prometheus takes since 3.0, where names may be any text in UTF-8, and coldplate with a warning."""


@pytest.mark.parametrize("case", BAD_RULES)
def test_both_refuse_what_is_wrong(case: str, tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    path = tmp_path / "r.yml"
    path.write_text(BAD_RULES[case])
    theirs, ours = promtool("check", path), coldplate("check", path)
    taken = case in NAMES_OF_ANY_LETTERS and version_of(need("promtool")) >= (3, 0)
    assert theirs.status == (0 if taken else 1), theirs.text
    assert ours.status == (0 if case in NAMES_OF_ANY_LETTERS else 1), ours.text
    assert f"{path}:1: " in ours.text


def test_both_refuse_a_file_that_is_not_there(tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    for action in ("check", "test"):
        theirs, ours = promtool(action, tmp_path / "none.yml"), coldplate(action, tmp_path / "none.yml")
        assert (theirs.status, ours.status) == (1, 1)
