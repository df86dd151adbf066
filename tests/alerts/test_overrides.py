"""Which rule files a configuration names, and what it changes in them; an error names the key and the remedy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.schema import OverrideConfig as Override
from agent.config.schema import RuleChangeConfig as Change
from alerts import packs, rulefile
from alerts.group_evaluator import GroupEvaluator
from alerts.overrides import OverrideError, apply
from alerts.promql import Storage, make_labels
from alerts.rulefile import AlertingRule, RuleFile, RuleFileError, TooManyRulesError

TEXT = """
groups:
- name: heat
  interval: 5s
  limit: 9
  query_offset: 1s
  rules:
  - {record: 'gpu:t:max', expr: 'max by (gpu) (t)'}
  - alert: Hot
    expr: |
      rate(gpu:t:max{zone="80"}[5m] offset 1m)
        > 80  # and not 90
    for: 5m
    keep_firing_for: 1m
    labels: {severity: warning, team: hpc}
    annotations: {summary: 'at {{ $value }}', runbook_url: docs/Hot.md}
  - {alert: Hot, expr: 'gpu:t:max > 9e1', labels: {severity: critical}}
- name: dust
  rules:
  - {alert: Dusty, expr: fan > 0.95}
  - {alert: DustyFilter, expr: filter > 0.5}
"""


def files() -> list[RuleFile]:
    return [rulefile.parse(TEXT, "/etc/coldplate/heat.yml")]


def changed(overrides: Mapping[str, Override], disable: tuple[str, ...] = ()) -> RuleFile:
    (file,) = apply(files(), disable, overrides, default_step=60.0)
    return file


def alerts(file: RuleFile, name: str) -> list[AlertingRule]:
    rules = [rule for group in file.groups for rule in group.rules if rule.name == name]
    assert all(isinstance(rule, AlertingRule) for rule in rules)
    return rules  # type: ignore[return-value]  # just asserted, which mypy cannot follow through a comprehension


def texts(templates: Any) -> dict[str, str]:
    return {name: template.source for name, template in templates}


def test_every_alert_of_the_name_is_overridden_and_all_else_stays_the_same() -> None:
    file = changed({"Hot": Override(hold=600.0, annotations={"owner": "{{ $labels.gpu }}"})})
    first, second = alerts(file, "Hot")
    assert (first.terms.rule, first.terms.hold, first.terms.keep_firing) == ("Hot", 600.0, 60.0)
    assert (second.terms.hold, second.terms.keep_firing) == (600.0, 0.0)
    assert texts(first.annotations) == {
        "owner": "{{ $labels.gpu }}", "runbook_url": "docs/Hot.md", "summary": "at {{ $value }}"
    }  # fmt: skip
    assert texts(second.annotations) == {"owner": "{{ $labels.gpu }}"}
    assert texts(first.labels) == {"severity": "warning", "team": "hpc"}
    assert (first.expression, first.line) == (alerts(files()[0], "Hot")[0].expression, 9)
    group = file.groups[0]
    assert (group.name, group.interval, group.limit, group.query_offset) == ("heat", 5.0, 9, 1.0)
    given = files()
    (file,) = apply(given, (), {}, default_step=60.0)
    assert [each.rules for each in file.groups] == [each.rules for each in given[0].groups]
    assert (file.path, file.warnings) == (given[0].path, given[0].warnings)


def test_zero_overrides_a_duration_and_an_empty_text_removes_an_annotation() -> None:
    (first, _) = alerts(changed({"Hot": Override(hold=0.0)}), "Hot")
    assert (first.terms.hold, first.terms.keep_firing) == (0.0, 60.0)
    (first, _) = alerts(changed({"Hot": Override(keep_firing_for=0.0)}), "Hot")
    assert (first.terms.hold, first.terms.keep_firing) == (300.0, 0.0)
    first, _ = alerts(changed({"Hot": Override(annotations={"runbook_url": ""})}), "Hot")
    assert texts(first.annotations) == {"summary": "at {{ $value }}"}


def test_an_empty_text_removes_a_label_whether_the_rule_or_the_result_has_it() -> None:
    file = changed({"Dusty": Override(labels={"gpu": "", "team": "{{ $labels.rack }}-hpc"})})
    storage = Storage()
    storage.append(make_labels({"gpu": "3", "rack": "r12"}, "fan"), 100.0, 0.99)
    group = GroupEvaluator(file.groups[1])
    group.evaluate(storage, 100.0)
    (alert,) = group.firing()
    assert dict(alert.labels) == {"alertname": "Dusty", "rack": "r12", "team": "r12-hpc"}


def test_a_threshold_replaces_numbers_and_nothing_else_in_the_alerts_that_have_it() -> None:
    first, second = alerts(changed({"Hot": Override(thresholds={80.0: 82.5})}), "Hot")
    expected = 'rate(gpu:t:max{zone="80"}[5m] offset 1m)\n  > 82.5  # and not 90\n'
    assert (first.expression, first.query.text) == (expected, expected)
    assert second.expression == "gpu:t:max > 9e1"
    first, second = alerts(changed({"Hot": Override(thresholds={90.0: 95.0})}), "Hot")
    assert "> 80 " in first.expression
    assert second.expression == "gpu:t:max > 95"


def replaced(query: str, thresholds: dict[float, float]) -> AlertingRule:
    """An alert of this query with these thresholds."""
    text = f"groups: [{{name: g, rules: [{{alert: A, expr: {query!r}}}]}}]".replace("\\'", "''")
    (file,) = apply([rulefile.parse(text, "f")], (), {"A": Override(thresholds=thresholds)}, default_step=60.0)
    (rule,) = alerts(file, "A")
    return rule


@pytest.mark.parametrize(
    ("query", "thresholds", "expected"),
    [
        ("a > 1e8", {1e8: 2e9}, "a > 2000000000"),
        ("a > 0x1f", {31.0: 32.0}, "a > 32"),
        ("a > 017", {15.0: 16.0}, "a > 16"),
        ("a > 1_000", {1000.0: 2000.0}, "a > 2000"),
        ("a > .5", {0.5: 0.4}, "a > 0.4"),
        ("a > 5.", {5.0: 6.0}, "a > 6"),
        ("a > 5e-3", {0.005: 0.001}, "a > 0.001"),
        ("a - 5 > -5", {5.0: 7.0}, "a - 7 > -7"),
        ("a ^ 2 > 3", {2.0: -2.0}, "a ^ (-2) > 3"),
        ("a > 3 and b > 4", {3.0: 4.0}, "a > 4 and b > 4"),
        ("sum_over_time(a[5m:1m]) > 5", {5.0: 6.0}, "sum_over_time(a[5m:1m]) > 6"),
        ("sum_over_time(a[300:60] offset 300) > 300", {300.0: 6.0}, "sum_over_time(a[300:60] offset 300) > 6"),
        ("a offset -300 > 300", {300.0: 6.0}, "a offset -300 > 6"),
        ("a > 5m + 300 > Inf", {300.0: 6.0}, "a > 5m + 6 > Inf"),
        ('{"a 5", b="5"} > 5', {5.0: 6.0}, '{"a 5", b="5"} > 6'),
        ("a5:5 > 5 # 5", {5.0: 6.0}, "a5:5 > 6 # 5"),
        ("""a{b="5",c=~'5|6',d!=`5`} > 5""", {5.0: 6.0}, """a{b="5",c=~'5|6',d!=`5`} > 6"""),
        ("quantile(0.5, a) > 0.5", {0.5: 0.6}, "quantile(0.6, a) > 0.6"),
        ("a > 1 < 2", {1.0: 2.0, 2.0: 1.0}, "a > 2 < 1"),  # at once, and never twice
    ],
)
def test_what_is_a_number_of_a_query_is_replaced_where_it_stands(
    query: str, thresholds: dict[float, float], expected: str
) -> None:
    rule = replaced(query, thresholds)
    assert (rule.expression, rule.query.text) == (expected, expected)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False), st.floats(allow_nan=False))
def test_any_number_can_take_the_place_of_any_other(old: float, new: float) -> None:
    (sample,) = replaced(f"vector({old!r})", {old: new}).query.evaluate(Storage(), 0.0)
    assert sample.value == new


def test_an_expression_takes_the_place_of_the_query() -> None:
    given = {"Hot": Override(severity={"warning": Change(expr="increase(u[5m:]) > 7")})}
    first, second = alerts(changed(given), "Hot")
    assert first.expression == first.query.text == "increase(u[5m:]) > 7"
    assert second.expression == "gpu:t:max > 9e1"
    (selector,) = first.query.selectors
    assert selector.history == 300.0
    assert first.terms.hold == 300.0


def test_an_override_of_a_severity_wins_over_the_one_for_all_rules_of_the_name() -> None:
    level = Change(hold=7.0, labels={"team": "hall"}, thresholds={80.0: 70.0})
    given = Override(
        hold=600.0, keep_firing_for=5.0, labels={"team": "all", "site": "a"}, thresholds={80.0: 85.0, 90.0: 95.0},
        severity={"warning": level},
    )  # fmt: skip
    first, second = alerts(changed({"Hot": given}), "Hot")
    assert (first.terms.hold, first.terms.keep_firing) == (7.0, 5.0)
    assert texts(first.labels) == {"severity": "warning", "site": "a", "team": "hall"}
    assert "> 70 " in first.expression
    assert (second.terms.hold, second.terms.keep_firing, second.expression) == (600.0, 5.0, "gpu:t:max > 95")
    assert texts(second.labels) == {"severity": "critical", "site": "a", "team": "all"}


def test_disabled_alerts_and_empty_groups_go_and_recording_rules_stay() -> None:
    file = changed({}, disable=("Hot", "Dusty*"))
    assert [(group.name, [rule.name for rule in group.rules]) for group in file.groups] == [("heat", ["gpu:t:max"])]
    assert changed({}, disable=("*",)).rule_count == 1
    assert alerts(changed({"Hot": Override(hold=1.0)}, disable=("Hot",)), "Hot") == []
    assert [rule.name for rule in changed({}, disable=("Dusty",)).groups[1].rules] == ["DustyFilter"]


WRONG: list[tuple[dict[str, Override], tuple[str, ...], str]] = [
    ({"Hott": Override()}, (), "override.Hott: the rule files have no alert 'Hott'; did you mean 'Hot'?"),
    ({"Zzz": Override()}, (), "override.Zzz: the rule files have no alert 'Zzz'; use one of Dusty, Dusty"),
    ({"gpu:t:max": Override()}, (), "override.gpu:t:max: 'gpu:t:max' is a recording rule, which other rules may read"),
    ({}, ("hot",), "disable: the rule files have no alert 'hot'; did you mean 'Hot'?"),
    ({}, ("Hot", "gpu:*"), "disable: the rule files have no alert 'gpu:*'; use one of "),
    ({"Hot": Override(thresholds={85.0: 1.0})}, (),
     "override.Hot.thresholds: the query has no number 85; its numbers are 80, 9e1"),
    ({"Hot": Override(thresholds={-80.0: 1.0})}, (), "no number -80; its numbers are 80, 9e1, without a sign"),
    ({"Hot": Override(thresholds={80.0: float("nan")})}, (), "override.Hot.thresholds: nan is never reached"),
    ({"Hot": Override(expr="t > 1")}, (), "override.Hot.expr: would be the query of 2 rules; choose"),
    ({"Hot": Override(severity={"warn": Change()})}, (), "severity: no rule has 'warn'; use one of critical, w"),
    ({"Hot": Override(severity={"critical": Change(thresholds={80.0: 1.0})})}, (),
     "override.Hot.severity.critical.thresholds: the query has no number 80; its numbers are 9e1"),
    ({"Hot": Override(expr="t > 1", thresholds={80.0: 1.0})}, (), "override.Hot.expr: cannot be combined with"),
    ({"Hot": Override(expr="ratee(t[5m])")}, (), "override.Hot.expr: line 1, column 1: "),
    ({"Hot": Override(expr="t >")}, (), "override.Hot.expr: line 1, column 4: unexpected end of input"),
    ({"Hot": Override(expr="")}, (), "override.Hot.expr: "),
    ({"Hot": Override(labels={"team": "{{ $value"})}, (), "override.Hot.labels.team: template: "),
    ({"Hot": Override(annotations={"n": "{{ query `up ==` }}"})}, (), "override.Hot.annotations.n: template: query: "),
    ({"Hot": Override(annotations={"n": "{{ query $labels.n }}"})}, (),
     "override.Hot.annotations.n: template: column 4: the text of the query"),
    ({"Hot": Override(labels={"__name__": "c"})}, (), "override.Hot.labels: '__name__' is not a valid label"),
    ({"Hot": Override(labels={"severity": "info", "team": ""})}, (),
     "override.Hot: its rules at lines 9 and 17 of /etc/coldplate/heat.yml would have the same labels; keep"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "disable", "message"), WRONG, ids=[message[:44] for *_, message in WRONG])
def test_what_cannot_be_applied_is_reported_with_its_key_and_remedy(
    overrides: dict[str, Override], disable: tuple[str, ...], message: str
) -> None:
    with pytest.raises(OverrideError) as caught:
        changed(overrides, disable)
    text = str(caught.value)
    assert message in text
    assert text.startswith(("override.", "disable: "))


def test_a_query_without_numbers_says_so() -> None:
    with pytest.raises(OverrideError, match="the query has no number 1; it has none; override expr instead"):
        replaced("a == b", {1.0: 2.0})


RULES = "groups: [{{name: {name}, rules: [{{alert: A, expr: up}}]}}]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub[1]").mkdir()
    for name in ("a.yml", "b.yml", "sub[1]/c.yml"):
        (tmp_path / name).write_text(RULES.format(name=Path(name).stem))
    return tmp_path


def test_builtin_is_the_shipped_pack_in_order_and_advice_is_loaded_by_its_name() -> None:
    found = packs.find("builtin", Path("/nowhere"))
    assert found == packs.builtin_files()
    assert [path.name for path in found] == sorted(path.name for path in found)
    assert {"thermal.yml", "agent.yml"} <= {path.name for path in found}
    assert all(path.is_file() for path in found)
    assert [path.name for path in packs.find("advice", Path("/nowhere"))] == ["advice.yml"]
    assert {path.name for path in packs.shipped_files()} - {path.name for path in packs.builtin_files()} == {
        "advice.yml"
    }
    assert [Path(file.path).stem for file in packs.load_all(["advice"], None, 60.0)] == ["advice"]


def test_an_entry_may_be_a_pattern_and_is_relative_to_the_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert packs.find("a.yml", folder) == [folder / "a.yml"]
    assert packs.find("*.yml", folder) == [folder / "a.yml", folder / "b.yml"]
    assert packs.find(f"{folder}/[b].yml", Path("/nowhere")) == [folder / "b.yml"]
    assert packs.find("*.yml", folder / "sub[1]") == [folder / "sub[1]" / "c.yml"]
    assert packs.find("sub[1]/c.yml", folder) == [folder / "sub[1]" / "c.yml"]
    monkeypatch.chdir(folder)
    assert packs.find("a.*", None) == [Path("a.yml")]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("none.yml", r"'none.yml' matches no file \(.*/none.yml\); name a rule file, a pattern such as 'rules/\*.yml'"),
        ("*.yaml", r"'\*.yaml' matches no file"),
        ("sub*", r"'sub\*' matches no file"),
        ("sub[1]", r"'sub\[1\]' is a directory; name its files, such as 'sub\[1\]/\*.yml'"),
        ("bultin", r"'builtin' or 'advice'"),
        *((entry, "matches no file") for entry in ("x" * 300, "x" * 5000, "a\0b", "[", "a/b/c", "../" * 50 + "none")),
    ],
)
def test_an_entry_that_names_no_file_is_an_error(folder: Path, entry: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packs.load_all(["builtin", entry], folder, 60.0)


def test_a_file_that_several_entries_name_is_loaded_once(folder: Path) -> None:
    (folder / "link.yml").symlink_to(folder / "a.yml")
    loaded = packs.load_all(["b.yml", "*.yml", str(folder / "a.yml")], folder, 60.0)
    assert [file.groups[0].name for file in loaded] == ["b", "a"]
    assert [file.path for file in loaded] == [str(folder / "b.yml"), str(folder / "a.yml")]


def test_the_problems_of_all_files_are_reported_at_once(folder: Path) -> None:
    (folder / "x.yml").write_text("groups: 7")
    (folder / "y.yml").write_text("groups: [{name: g, intervall: 1m}]")
    with pytest.raises(RuleFileError) as caught:
        packs.load_all(["*.yml"], folder, 60.0)
    assert [Path(each.file).name for each in caught.value.problems] == ["x.yml", "y.yml"]


def test_the_default_step_is_that_of_subqueries_without_one(folder: Path) -> None:
    (folder / "a.yml").write_text("groups: [{name: g, rules: [{record: r, expr: 'sum_over_time(vector(1)[1m:])'}]}]")
    (file,) = packs.load_all(["a.yml"], folder, 15.0)
    (sample,) = file.groups[0].rules[0].query.evaluate(Storage(), 60.0)
    assert sample.value == 4.0


def rules(name: str, count: int) -> str:
    each = ", ".join(f"{{alert: A{number}, expr: up > {number}}}" for number in range(count))
    return f"groups: [{{name: {name}, rules: [{each}]}}]"


def test_the_rules_of_a_site_and_their_words_are_counted_over_all_its_files(folder: Path) -> None:
    (folder / "a.yml").write_text(rules("a", 300))
    (folder / "b.yml").write_text(rules("b", 200))
    shipped = sum(file.rule_count for file in packs.load_all(["builtin", "advice"], None, 1.0))
    loaded = packs.load_all(["builtin", "advice", "?.yml"], folder, 1.0)
    assert sum(file.rule_count for file in loaded) == shipped + 500
    (folder / "b.yml").write_text(rules("b", 201))
    with pytest.raises(TooManyRulesError) as caught:
        packs.load_all(["?.yml", "builtin"], folder, 1.0)
    assert str(caught.value) == (
        f"{folder}/b.yml:1: here the rules of this site exceed 500, the most on a node; "
        "give the rest to a Prometheus server"
    )
    for name in "ab":
        row = " + ".join(["up"] * 4000)
        each = ", ".join(f"{{record: r{number}, expr: {row}}}" for number in range(3))
        (folder / f"{name}.yml").write_text(f"groups: [{{name: {name}, rules: [{each}]}}]")
    assert packs.load_all(["a.yml"], folder, 1.0)
    with pytest.raises(
        TooManyRulesError, match=r"b\.yml:1: here the rules of this site exceed 40000 words and signs, "
    ):
        packs.load_all(["?.yml"], folder, 1.0)


def test_of_too_many_problems_not_all_are_reported_and_too_many_files_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (folder / f"bad{number}.yml").write_text("groups: [" + "{nam: x}, " * 40 + "]")
    with pytest.raises(RuleFileError) as caught:
        packs.load_all(["bad*.yml"], folder, 1.0)
    assert 50 <= len(caught.value.problems) <= 102
    monkeypatch.setattr(packs, "MOST_FILES", 1)
    with pytest.raises(ValueError, match="matches more than 1 files; use a narrower pattern"):
        packs.find("*.yml", folder)
    with pytest.raises(ValueError, match="2 files; the limit is 1"):
        packs.load_all(["a.yml", "b.yml"], folder, 1.0)
