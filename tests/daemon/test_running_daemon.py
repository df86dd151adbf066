"""A daemon beside a real Prometheus, without a driver, and over a crash.

What a reload keeps is tried in tests/engine, tests/wiring and test_rule_manager.py.
"""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import warm
from tests.daemon.conftest import RunningDaemon, Start
from tests.servers import ended, need, prometheus, query
from tests.waiting import wait_until

FAST = "sampling: {fast: 250ms, slow: 1s, cold: 2s}\n"


def test_a_real_prometheus_scrapes_it(start, tmp_path: Path) -> None:
    need("prometheus")
    daemon = start("--scenario", "straggler", config=FAST)
    config = (
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        "scrape_configs:\n"
        "  - job_name: coldplate\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{daemon.port}']}}]\n"
    )
    with prometheus(config, tmp_path) as url:
        daemon.until("two scrapes", lambda: query(url, "rate(coldplate_gpu_energy_joules_total[5s]) > 0") != [], 15)
        joined = query(url, "coldplate_gpu_power_watts * on (gpu, uuid) group_left (job_id) coldplate_gpu_job_info")
        assert len(joined) == 8
        scraped = query(url, "scrape_samples_scraped")[0]["value"][1]
        assert int(scraped) == sum(not line.startswith("#") for line in daemon.get().splitlines())


def test_gpus_without_a_driver_are_critical_for_check_the_alerts_and_the_page(start: Start, tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    for address in ("0000:1b:00.0", "0000:43:00.0"):
        device = sysfs / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    daemon = start("--path.sysfs", str(sysfs))
    given = (
        ["--path.sysfs", str(sysfs)],
        ["--path.sysfs", str(tmp_path)],
        ["--path.sysfs", str(tmp_path), "--backend", "nvml"],
    )
    checked = warm.commands([["check", "--agent", "none", "--timeout", "20s", "--json", *each] for each in given])
    verdicts = [{each["name"]: each["verdict"] for each in json.loads(done.output)["findings"]} for done in checked]
    assert [(done.status, found["driver"]) for done, found in zip(checked, verdicts, strict=True)] == [
        (2, "critical"),
        (3, "unknown"),
        (2, "critical"),
    ]
    daemon.until("expected GPUs", lambda: daemon.family("coldplate_gpus_expected", "") == {"": 2.0}, 30)
    daemon.until("an alert", lambda: "GpuCountWrong" in alerts(daemon), 30)
    assert alerts(daemon)["GpuCountWrong"]["labels"]["severity"] == "critical"
    assert "0 GPUs, 2 expected" in daemon.get("/")


def test_a_repaired_web_file_ends_the_failure_of_the_reload_it_prevented(start: Start, tmp_path: Path) -> None:
    """Nobody asks for another reload, because the file is read again by itself."""
    web, good = tmp_path / "web.yml", "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    web.write_text(good)
    daemon = start("--web.config.file", str(web), config="sampling: {fast: 1s}\n")

    def show(success: float) -> Callable[[], bool]:
        names = ("coldplate_config_last_reload_successful", "coldplate_web_config_last_reload_successful")
        return lambda: [daemon.family(name, "") for name in names] == [{"": success}] * 2

    daemon.until("its first sample", show(1.0), 10)
    web.write_text("http_server_config: 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("the failure", show(0.0), 15)
    web.write_text(good)
    daemon.until("the success", show(1.0), 15)


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


def test_a_second_agent_does_not_write_into_the_flight_recorders_directory(start: Start, tmp_path: Path) -> None:
    def config(number: int, more: str = "") -> str:
        recorder = f"recorder: {{directory: {tmp_path / 'flight'}{more}}}"
        return f"state_dir: {tmp_path / f'state{number}'}\nbackends: {{devices: synthetic}}\n{recorder}\n"

    start(config=config(1))
    (tmp_path / "second.yaml").write_text(config(2))
    options = ["--config.file", str(tmp_path / "second.yaml"), "--web.listen-address", "127.0.0.1:0"]
    second = warm.command(["run", *options])
    assert second.status == 2
    words = f"recorder.directory: {tmp_path / 'flight'} is in use by another agent, process "
    assert words in second.error.decode()
    start(config=config(3, ", history: 0s"))  # it writes none


def test_a_second_agent_on_a_state_directory_does_not_start_and_commands_do(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"state_dir: {tmp_path / 'state'}\nbackends: {{devices: synthetic}}\n")
    first = start("--config.file", str(config))
    options = ["--config.file", str(config), "--web.listen-address", "127.0.0.1:0"]
    second, checked, paused = warm.commands(
        [["run", *options], ["run", "--config.check", *options], ["pause", "--end", *options[:2]]]
    )
    error = second.error.decode()
    assert second.status == 2
    assert f"{config}:1: state_dir: {tmp_path / 'state'} is in use by another agent, process " in error
    assert (checked.status, paused.status) == (0, 0), (checked.error, paused.error)
    first.stop(signal.SIGKILL)
    start("--config.file", str(config))


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
    worker = first.worker_pid
    first.stop(signal.SIGKILL)
    wait_until(lambda: ended(worker), 8)

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
