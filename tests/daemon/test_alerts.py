"""Alerts over crashes and reloads, and mistakes in rules and receivers."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from tests import warm
from tests.daemon.conftest import Start
from tests.each import for_each

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


# -- crashes ----------------------------------------------------------------------------------------------------------


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


# -- configuration ----------------------------------------------------------------------------------------------------


def test_a_broken_rule_file_ends_a_start_with_everything_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text(HOT.replace("for: 6s", "for: soon").replace('{gpu="4"}', '{gpu="4"'))
    (tmp_path / "c.yaml").write_text("rules: {files: [bad.yml]}\n")
    done = warm.command(["run", "--scenario", "idle", "--config.file", str(tmp_path / "c.yaml")])
    told = done.error.decode()
    assert done.status == 2
    assert "Traceback" not in told
    assert f"{tmp_path}/bad.yml:7: " in told and "'soon' is not a duration" in told
    assert f"{tmp_path}/bad.yml:11: " in told and "WarmAtOnce" in told


@for_each(
    "mistake",
    [
        "notify: {alertmanager: {urls: ['http://am:9093/api/v2/alerts']}}",
        "notify: {webhook: {urls: ['am:9093']}}",
        "node: {name: 'rack 7 node'}\nnotify: {alertmanager: {urls: ['http://am:9093']}}",
        "rules: {override: {GpuHott: {for: 1m}}}",
        "rules: {disable: [Nothing*]}",
        "rules: {files: [nowhere/*.yml]}",
        "jobs: {sources: [slurn]}",
    ],
)
def test_a_mistake_in_the_configuration_is_one_line_and_status_2(mistake: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(mistake)
    done = warm.command(["run", "--scenario", "idle", "--config.file", str(tmp_path / "c.yaml")])
    told = done.error.decode()
    assert done.status == 2, told
    assert "Traceback" not in told
    assert told.strip().count("\n") == 0


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


def state_of(folder: Path) -> str:
    return (folder / "state" / "alerts.state").read_text()
