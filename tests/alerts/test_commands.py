"""`coldplate rules check` and `rules test` as an operator sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import cli

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
    assert cli.main(["rules", "test", str(files / "t.yml")]) == 1
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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("eval_time: 1m\n", "evaltime: 1m\n", "t.yml:9: test 1 (hot), alert_rule_test 1: evaltime: unknown key"),
        ("- name: hot", "- nam: hot", "t.yml:3: test 1: nam: unknown key; did you mean 'name'?"),
        ("values: 90x5", "values: 90y5", "t.yml:6: test 1 (hot), input_series 1: '90y5' is invalid"),
        ("value: 91", "value: NaN", "exp_samples: value: 'NaN' is not a number; write one such as 1.5, .inf"),
        ("interval: 1m", "interval: 1x", "test 1 (hot), interval: '1x' is not a duration"),
        ("tests:", "evaluation_intervall: 1m\ntests:", "t.yml:2: evaluation_intervall: unknown key; did you mean"),
        ("    alertname: Hot\n", "", "alert_rule_test 1: alertname: is missing"),
    ],
)
def test_a_mistake_in_a_test_file_is_reported_with_its_place(
    files: Path, coldplate: Any, old: str, new: str, message: str
) -> None:
    (files / "t.yml").write_text(TESTS.replace(old, new, 1))
    verdict = coldplate("test", files / "t.yml")
    assert verdict.status == 1
    assert message in verdict.text


def test_a_series_may_be_longer_than_its_test(files: Path, coldplate: Any) -> None:
    text = coldplate("test", files / "t.yml").text
    (files / "t.yml").write_text(TESTS.replace("values: 90x5", "values: 90x10000000", 1))
    assert coldplate("test", files / "t.yml").text == text


def test_a_test_that_reads_too_many_samples_is_refused(tmp_path: Path, coldplate: Any) -> None:
    series = "interval: 1s, input_series: [{series: m, values: 1x30000000}]"
    cases = "promql_expr_test: [{expr: m, eval_time: 1y}]"
    (tmp_path / "t.yml").write_text(f"evaluation_interval: 1h\ntests:\n- {{{series}, {cases}}}\n")
    verdict = coldplate("test", tmp_path / "t.yml")
    assert verdict.status == 1
    assert "t.yml:3: test 1: with this the file has more than 20000000 samples" in verdict.text


def test_rules_that_cannot_be_loaded_fail_the_test(files: Path, coldplate: Any) -> None:
    (files / "r.yml").write_text(RULES.replace("t > 80", "t >"))
    verdict = coldplate("test", files / "t.yml")
    assert verdict.status == 1
    assert "r.yml:5: group 'g', rule 1, alert 'Hot': expr: " in verdict.text


def test_a_pattern_that_names_no_file_is_a_warning(tmp_path: Path, coldplate: Any) -> None:
    (tmp_path / "t.yml").write_text("rule_files: ['*.rules.yml']\n")
    verdict = coldplate("test", tmp_path / "t.yml")
    assert verdict.status == 0
    assert "WARNING: no file match pattern" in verdict.text


@pytest.mark.parametrize("arguments", [["rules"], ["rules", "check"], ["rules", "mend", "x"]])
def test_a_mistake_in_the_command_line_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
