"""A real daemon with rules that nobody should write: the others are evaluated, the page is served, and it stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RULES = r"""
groups:
- name: dear
  rules:
  - record: steps
    expr: max_over_time(rate(coldplate_gpu_power_watts[1m])[1d:1ms])
  - alert: Backtracks
    expr: label_replace(coldplate_gpu_info{uuid=~"(([0-9a-z-])+)+!|.*"}, "x", "$1", "uuid", "(([0-9a-z-])+)+!") > 0
    annotations:
      text: '{{ match `(a+)+b` "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" }}'
  - alert: Runaway
    expr: coldplate_gpu_up > 0
    annotations:
      text: |
        {{ range query `{job=~".+"}` }}{{ range query `{job=~".+"}` }}{{ range query `{job=~".+"}` }}
        {{ end }}{{ end }}{{ end }}
- name: plain
  rules:
  - alert: There
    expr: coldplate_gpu_up{gpu="3"} > 0
"""


@pytest.mark.release  # the drill has such rules, too, and tests/engine/test_limits.py each limit without a daemon
def test_rules_that_would_stop_everything_affect_only_themselves(start: Callable[..., Any], tmp_path: Path) -> None:
    rules = tmp_path / "bad.yml"
    rules.write_text(RULES)
    daemon = start("--scenario", "healthy-training", config=f"rules: {{files: [builtin, {rules}]}}")

    def alerts() -> set[str]:
        return {dict(labels)["alertname"] for name, labels in daemon.page() if name == "coldplate_alert"}

    def failed() -> float:
        return float(daemon.family("coldplate_rule_evaluation_failures_total", "rule_group").get("dear", 0.0))

    def evaluated() -> float:
        return float(daemon.family("coldplate_rule_evaluations_total", "rule_group").get("plain", 0.0))

    daemon.until("the alerts of the rules that are well", lambda: {"There", "Backtracks"} <= alerts(), 30)
    daemon.until("the others to fail", lambda: failed() >= 2, 30)
    before = evaluated()
    daemon.until("the evaluation to go on", lambda: evaluated() >= before + 5, 30)
    missed = daemon.family("coldplate_rule_group_iterations_missed_total", "rule_group")
    assert {"engine", "dear", "plain"} <= missed.keys()
    assert missed["dear"] > 0
    report = daemon.get("/api/v1/rules")
    assert report.count("query timed out in expression evaluation") == 2
    log = daemon.log.read_text()
    assert log.count("rule failed;") == 2 and "Traceback" not in log
    assert daemon.stop() == 0
