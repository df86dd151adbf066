"""A daemon beside a real Prometheus, without a driver, over crashes and reloads, and with a pipe as configuration."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.daemon.conftest import RunningDaemon, Start
from tests.servers import need, prometheus, query

FAST = "sampling: {fast: 250ms, slow: 1s, cold: 2s}\n"


def test_promtool_finds_nothing_wrong_and_a_real_prometheus_scrapes_it(start, tmp_path: Path) -> None:
    need("prometheus")
    daemon = start("--scenario", "straggler", config=FAST)
    checked = subprocess.run([need("promtool"), "check", "metrics"], input=daemon.get().encode(), capture_output=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    config = (
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        "scrape_configs:\n"
        "  - job_name: coldplate\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{daemon.port}']}}]\n"
    )
    with prometheus(config, tmp_path) as url:
        daemon.until("two scrapes", lambda: query(url, "rate(coldplate_gpu_energy_joules_total[5s]) > 0") != [], 15)
        assert len(query(url, "coldplate_gpu_up == 1")) == 8
        assert query(url, 'up{job="coldplate"}')[0]["value"][1] == "1"
        joined = query(url, "coldplate_gpu_power_watts * on (gpu, uuid) group_left (job_id) coldplate_gpu_job_info")
        assert len(joined) == 8
        scraped = query(url, "scrape_samples_scraped")[0]["value"][1]
        assert int(scraped) == sum(not line.startswith("#") for line in daemon.get().splitlines())


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for address in ("0000:1b:00.0", "0000:43:00.0"):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    return tmp_path / "sys"


def test_check_is_critical(sysfs: Path, tmp_path: Path) -> None:
    given = (["--path.sysfs", str(sysfs)], ["--path.sysfs", str(tmp_path)],
             ["--path.sysfs", str(tmp_path), "--backend", "nvml"])  # fmt: skip
    ended = warm.commands([["check", "--agent", "none", "--timeout", "20s", "--json", *each] for each in given])
    verdicts = [{each["name"]: each["verdict"] for each in json.loads(done.output)["findings"]} for done in ended]
    assert [(done.status, found["driver"]) for done, found in zip(ended, verdicts, strict=True)] == [
        (2, "critical"), (3, "unknown"), (2, "critical"),
    ]  # fmt: skip


def test_the_daemon_alerts_and_its_page_is_bad(sysfs: Path, start) -> None:
    daemon = start("--path.sysfs", str(sysfs))
    daemon.until("expected GPUs", lambda: daemon.family("coldplate_gpus_expected", "") == {"": 2.0}, 30)
    daemon.until("an alert", lambda: "GpuCountWrong" in alerts(daemon), 30)
    assert alerts(daemon)["GpuCountWrong"]["labels"]["severity"] == "critical"
    page = daemon.get("/")
    assert "Bad" in page
    assert "0 of 2 GPUs" in page


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


def alerts(daemon: RunningDaemon) -> dict[str, dict[str, Any]]:
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
    successful = "coldplate_config_last_reload_successful"
    daemon.until("the refusal", lambda: daemon.value(successful) == 0, 5)
    assert "drill.yml:5" in daemon.log.read_text()
    assert alerts(daemon)["WarmAtOnce"]["activeAt"] == since

    rules.write_text(HOT.replace("Warm\n", "Lukewarm\n").replace("for: 6s", "for: 0s"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("the new rule", lambda: "Lukewarm" in alerts(daemon), 10)
    daemon.until("the reload's result", lambda: daemon.value(successful) == 1, 5)  # known once all of it is applied
    assert alerts(daemon)["WarmAtOnce"]["activeAt"] == since
    assert "Warm" not in alerts(daemon)
    shown = {"Lukewarm": 1.0, "WarmAtOnce": 1.0}
    daemon.until("it on the page", lambda: daemon.family("coldplate_alert", "alertname") == shown, 5)


def test_a_configuration_without_a_writer_costs_its_reload_and_not_the_port(start, tmp_path: Path) -> None:
    """A pipe where the file was: whoever opens it may wait for ever."""
    text = f"web: {{enable_lifecycle: true}}\nbackends: {{devices: none}}\n{FAST}"
    daemon = start(config=text)
    path = next(tmp_path.glob("*.yaml"))
    path.unlink()
    os.mkfifo(path)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(daemon.reload()[0]))
    asking.start()
    for _ in range(20):
        assert daemon.get("/-/healthy") == "healthy\n"
        assert daemon.page()
        time.sleep(0.05)
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO  # nobody waits for it: the reload was refused
    else:
        os.write(pipe, text.encode())
        os.close(pipe)
    asking.join(30)
    assert answers in ([200], [500])
    assert daemon.page()
