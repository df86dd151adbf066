"""`render rules`: the same rules when read again, nobody's file overwritten; `rules check`."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import cli
from agent.cli import main
from agent.commands.render import MARK
from agent.commands.render import render_rule_files as render
from agent.config.schema import OverrideConfig as Override
from agent.lib.wording import UserError
from alerts import packs, rulefile
from alerts.lifecycle import RuleTiming
from alerts.overrides import apply
from alerts.promql import compile_query
from alerts.rulefile import AlertingRule, RecordingRule, Rule, RuleFile, RuleGroup
from alerts.server_files import write
from alerts.template import compile_template
from tests.rule_tests.command import run_files

TEXT = """groups:
- name: heat
  interval: 1m30s
  limit: 9
  query_offset: 10s
  rules:
  - record: gpu:t:max
    expr: |
      max by (gpu) (
        t
      )
    labels:
      team: hpc

  - alert: Hot
    expr: gpu:t:max > 80
    for: 5m
    keep_firing_for: 1h
    labels:
      severity: '1'
    annotations:
      summary: '{{ $labels.gpu }} is at {{ $value }}: hot'

- name: none
  rules: []

- name: dust
  rules:
  - alert: Dusty
    expr: fan > 0.95
"""


def told(rule: Rule) -> tuple[object, ...]:
    """All that a rule says, but for its line."""
    if not isinstance(rule, AlertingRule):
        return rule.name, rule.expression, rule.query.text, rule.labels
    templates = [[(name, each.source) for name, each in pairs] for pairs in (rule.labels, rule.annotations)]
    return rule.name, rule.expression, rule.query.text, rule.terms, templates


def all_told(file: RuleFile) -> list[tuple[object, ...]]:
    return [(g.name, g.interval, g.limit, g.query_offset, [told(rule) for rule in g.rules]) for g in file.groups]


def test_a_file_is_written_as_by_hand_and_labels_of_a_group_with_each_rule() -> None:
    assert write(rulefile.parse(TEXT, "f")) == TEXT
    assert write(RuleFile("f", ())) == "groups: []\n"
    shared = rulefile.parse("groups: [{name: g, labels: {a: b}, rules: [{record: r, expr: up}]}]", "f")
    assert "    labels:\n      a: b\n" in write(shared)
    assert all_told(rulefile.parse(write(shared), "f")) == all_told(shared)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), max_size=30) | st.text(
    " \n\t:#-'\"|>!&*%@`\\,[]~=\x85\u2028\ufeffa0", max_size=12
)


@given(st.lists(texts, min_size=1, max_size=3), st.text(" \n", max_size=4), st.integers(0, 10**9))
def test_any_text_is_the_same_when_it_is_read_again(values: list[str], space: str, milliseconds: int) -> None:
    annotations = tuple((f"a{number}", compile_template(value)) for number, value in enumerate(values))
    query = compile_query(f"{space}up{space} > {space}0{space}")
    rule = AlertingRule("A", query, query.text, RuleTiming("A", milliseconds / 1000, 5.0), (), annotations, 1)
    other = AlertingRule("B", query, query.text, RuleTiming("B"), annotations, (), 2)
    group = RuleGroup("g", "f", (rule, other, RecordingRule("r", query, query.text, (), 3)), 1, 0.001)
    file = RuleFile("f", (group, RuleGroup("h", "f", (rule,), 9)))
    text = write(file).replace("alert: A", "alert: C", 1)  # one identity twice is refused
    assert str(all_told(rulefile.parse(text, "f"))) == str(all_told(file)).replace("'A'", "'C'", 2)


def test_promtool_and_coldplate_load_what_is_written(tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    overrides = {"GpuHot": Override(hold=1.5, labels={"severity": "", "team": "hpc"}, thresholds={5.0: -8.0})}
    files = apply(packs.load_all([packs.BUILTIN], None, 60.0), ("GpuXid*",), overrides, default_step=60.0)
    assert render(files, tmp_path / "made" / "here") == 0
    written = sorted((tmp_path / "made" / "here").iterdir())
    assert [path.name for path in written] == [path.name for path in packs.builtin_files()]
    for path, file in zip(written, files, strict=True):
        assert path.read_text().startswith(f"{MARK}\n# From {file.path}\ngroups:")
        assert all_told(rulefile.load(path)) == all_told(file)
        assert coldplate("check", path).status == 0
    assert promtool("check", *written).status == 0


def test_it_says_what_it_wrote_and_may_write_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [rulefile.parse(TEXT, "/a/heat.yml"), rulefile.parse("groups: []", "/b/heat.yml")]
    for _ in range(2):
        assert render(files, tmp_path) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"{tmp_path}/heat.yml: 3 rules from /a/heat.yml",
            f"{tmp_path}/heat-2.yml: 0 rules from /b/heat.yml",
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heat-2.yml", "heat.yml"]
    assert rulefile.load(tmp_path / "heat-2.yml").groups == ()


def test_a_numbered_name_gives_way_to_a_file_that_has_it(tmp_path: Path) -> None:
    names = ["/a/x.yml", "/a/x-2.yml", "/b/x.yml", "/c/x.yml"]
    render([rulefile.parse("groups: []", name) for name in names], tmp_path)
    origins = {path.name: path.read_text().splitlines()[1] for path in tmp_path.iterdir()}
    assert origins == {
        "x.yml": "# From /a/x.yml",
        "x-2.yml": "# From /a/x-2.yml",
        "x-3.yml": "# From /b/x.yml",
        "x-4.yml": "# From /c/x.yml",
    }


def test_a_foreign_file_is_never_overwritten_and_a_failed_write_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "dust.yml").write_text("groups: []\n")
    files = [rulefile.parse(TEXT, "/a/heat.yml"), rulefile.parse(TEXT, "/a/dust.yml")]
    with pytest.raises(
        UserError, match=r"--output: .*dust.yml was not written by this command, or was edited; move it"
    ):
        render(files, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dust.yml"]
    assert (tmp_path / "dust.yml").read_text() == "groups: []\n"
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--output: .*file is not a directory"):
        render([rulefile.parse(TEXT, "/a/heat.yml")], tmp_path / "file")
    with pytest.raises(UserError, match=r"--output: .*: Not a directory"):
        render([rulefile.parse(TEXT, "/a/heat.yml")], tmp_path / "file" / "inner")
    (tmp_path / "heat.yml").mkdir()
    with pytest.raises(UserError, match=r"heat.yml was not written by this command"):
        render([rulefile.parse(TEXT, "/a/heat.yml")], tmp_path)


def test_files_left_from_an_earlier_time_are_reported_and_foreign_ones_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    render([rulefile.parse(TEXT, "/a/old.yml")], tmp_path)
    (tmp_path / "mine.yml").write_text("groups: []\n")
    capsys.readouterr()
    render([rulefile.parse(TEXT, "/a/new.yml")], tmp_path)
    said = capsys.readouterr().err
    assert said == f"{tmp_path}/old.yml: left over from an earlier run; remove it, or a server loads it as well\n"


def rendered(out: Path, *options: str) -> dict[str, RuleFile]:
    assert main(["render", "rules", "--output", str(out), *options]) == 0
    return {path.name: rulefile.load(path) for path in out.glob("*.yml")}


def test_a_server_need_not_evaluate_more_often_than_it_scrapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_it_is, slowed = rendered(tmp_path / "a"), rendered(tmp_path / "b", "--min-interval", "15s")
    assert slowed.keys() == as_it_is.keys()
    for name, file in as_it_is.items():
        for group, other in zip(file.groups, slowed[name].groups, strict=True):
            assert other.interval == (group.interval if group.interval is None else max(group.interval, 15.0))
            assert [told(rule) for rule in group.rules] == [told(rule) for rule in other.rules]
    assert {group.interval for group in as_it_is["rack.yml"].groups} == {1.0}
    assert main(["render", "rules", "--output", str(tmp_path / "out"), "--min-interval", "15"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_shard_gets_what_compares_agents_and_all_files_of_a_site(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("groups: [{name: s, interval: 5s, rules: [{record: a:b:c, expr: up}]}]")
    config = tmp_path / "c.yaml"
    config.write_text("rules: {files: [builtin, site.yml]}")
    found = rendered(tmp_path / "out", "--for-shard", "--config.file", str(config))
    assert found.keys() == {
        "breakers.yml",
        "rack.yml",
        "rack-faults.yml",
        "rack-state.yml",
        "site.yml",
        "fleet.rules.yml",
    }
    assert min(group.interval or 15 for file in found.values() for group in file.groups) == 15


RULES = """groups:
- name: g
  rules:
  - alert: Hot
    expr: t > 80
    annotations: {summary: 'GPU {{ $labels.gpu }} is at {{ $value }}'}
"""
TESTS = """rule_files: [r.yml]
tests:
- name: hot
  interval: 1m
  input_series:
  - {series: 't{gpu="0"}', values: 90x5}
  - {series: 't{gpu="1"}', values: 95x5}
  alert_rule_test:
  - eval_time: 1m
    alertname: Hot
    exp_alerts:
    - exp_labels: {gpu: "0"}
      exp_annotations: {summary: GPU 0 is hot}
    - exp_labels: {gpu: "7"}
  promql_expr_test:
  - {expr: t, eval_time: 1m, exp_samples: [{labels: 't{gpu="0"}', value: 91}, {labels: 't{gpu="2"}', value: 1}]}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "r.yml").write_text(RULES)
    (tmp_path / "t.yml").write_text(TESTS)
    return tmp_path


def test_check_counts_the_rules_of_each_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "bad.yml").write_text("groups: [{name: g, rulez: []}]")
    assert cli.main(["rules", "check", str(files / "r.yml"), str(files / "bad.yml")]) == 1
    printed = capsys.readouterr()
    assert "SUCCESS: 1 rules found" in printed.out
    assert printed.err == f"  FAILED:\n  {files}/bad.yml:1: group 'g': rulez: unknown key; did you mean 'rules'?\n"


def test_a_failed_test_shows_what_differs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_files([files / "t.yml"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "  FAILED:",
        f"    {files}/t.yml:9: test 'hot', alertname: Hot, time: 1m",
        """          the alert {alertname="Hot", gpu="0"} has different annotations:""",
        """          - summary: 'GPU 0 is hot'""",
        """          + summary: 'GPU 0 is at 90'""",
        """        - expected, not firing: {alertname="Hot", gpu="7"}""",
        """        + firing, not expected: {alertname="Hot", gpu="1"} annotations {summary="GPU 1 is at 95"}""",
        """          0 of 2 expected alerts match""",
        f"    {files}/t.yml:16: test 'hot', expr: 't', time: 1m",
        """          {__name__="t", gpu="0"}: expected 91, got 90""",
        """        + present, not expected: {__name__="t", gpu="1"} 95""",
        """        - expected, missing: {__name__="t", gpu="2"} 1""",
    ]
