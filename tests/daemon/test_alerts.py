"""Alerts over crashes and reloads."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from tests.daemon.conftest import Start

HOT = """
groups:
- name: drill
  rules:
  - alert: Warm
    expr: coldplate_gpu_temperature_celsius{gpu="3"} > 0
    for: 6s
    labels: {severity: warning}
    annotations: {summary: "GPU {{ $labels.gpu }} is warm"}
  - alert: WarmAtOnce
    expr: coldplate_gpu_temperature_celsius{gpu="4"} > 0
    labels: {severity: info}
"""


def alerts(daemon) -> dict[str, dict[str, str]]:
    return {each["labels"]["alertname"]: each for each in json.loads(daemon.get("/api/v1/alerts"))["data"]["alerts"]}


def test_alerts_continue_after_a_crash_while_one_is_pending_and_while_one_fires(start: Start, tmp_path: Path) -> None:
    """That downtime does not count as pending is tried in tests/engine/test_alert_state.py."""
    (tmp_path / "drill.yml").write_text(HOT)
    config = f"rules: {{files: [drill.yml]}}\nstate_dir: {tmp_path / 'state'}\n"
    first = start("--scenario", "idle", config=config)
    first.until("both alerts", lambda: len(alerts(first)) == 2, 10)
    first.until("the state file", (tmp_path / "state" / "alerts.state").exists, 5)
    time.sleep(1.5)
    before = alerts(first)
    assert {name: alert["state"] for name, alert in before.items()} == {"Warm": "pending", "WarmAtOnce": "firing"}
    first.stop(signal.SIGKILL)

    second = start("--scenario", "idle", config=config)
    second.until("both alerts again", lambda: len(alerts(second)) == 2, 10)
    after = alerts(second)
    assert {name: alert["state"] for name, alert in after.items()} == {"Warm": "pending", "WarmAtOnce": "firing"}
    assert after["WarmAtOnce"]["activeAt"] == before["WarmAtOnce"]["activeAt"]
    assert after["Warm"]["activeAt"] > before["Warm"]["activeAt"]
    second.until("Warm to fire", lambda: alerts(second)["Warm"]["state"] == "firing", 8)
    log = second.log.read_text()
    assert "alerts restored" in log
    assert "firing: WarmAtOnce" not in log  # the same incident: told before
    assert "firing: Warm" in log


def test_a_reload_changes_rules_keeps_alerts_and_refuses_what_is_broken(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "drill.yml"
    rules.write_text(HOT)
    daemon = start("--scenario", "idle", config="rules: {files: [drill.yml]}\n")
    daemon.until("an alert", lambda: "WarmAtOnce" in alerts(daemon), 10)
    since = alerts(daemon)["WarmAtOnce"]["activeAt"]

    rules.write_text(HOT.replace("expr:", "exprr:"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("the refusal", lambda: daemon.family("coldplate_config_last_reload_successful", "")[""] == 0, 5)
    assert "drill.yml:5" in daemon.log.read_text()
    assert alerts(daemon)["WarmAtOnce"]["activeAt"] == since

    rules.write_text(HOT.replace("Warm\n", "Lukewarm\n").replace("for: 6s", "for: 0s"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("the new rule", lambda: "Lukewarm" in alerts(daemon), 10)
    assert alerts(daemon)["WarmAtOnce"]["activeAt"] == since
    assert "Warm" not in alerts(daemon)
    shown = {"Lukewarm": 1.0, "WarmAtOnce": 1.0}
    daemon.until("it on the page", lambda: daemon.family("coldplate_alert", "alertname") == shown, 5)
