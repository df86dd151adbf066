"""The demo announces what its site does, and says what came and what did not; started live, it ends without a trace."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from agent.commands.simulate.site_reader import read_site
from tests.deployment.compose_files import ROOT
from tests.lab.demo.__main__ import ROUND_SECONDS, SITE, server_config
from tests.lab.demo.announcements import EFFECTS, INHIBITION_GRACE_SECONDS, Watch, announcements
from tests.servers import need

LIVE_SECONDS = 150


def test_each_fault_of_the_site_is_announced_once_a_round() -> None:
    faults = yaml.safe_load(SITE.read_text())["faults"]
    found = announcements(read_site(SITE), ROUND_SECONDS - 1)
    assert len(found) == len(faults) >= 5
    for fault, announced in zip(faults, found, strict=True):
        assert announced.effect == EFFECTS[fault["kind"]]
        assert f"{announced.minute}m" == fault["at"] and announced.at % 60 == 0
        said = {"instance": fault.get("node"), "rack": fault.get("rack"), "device": fault.get("port")}
        assert announced.labels.items() <= {**said, "gpu": str(fault.get("gpu"))}.items()
    assert found[0].at + found[0].effect.within_seconds <= 300
    again = announcements(read_site(SITE), 2 * ROUND_SECONDS - 1)[len(found) :]
    assert [(each.at - ROUND_SECONDS, each.place) for each in again] == [(each.at, each.place) for each in found]


def test_the_server_loads_a_rule_for_each_announced_alert() -> None:
    config = server_config("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert config["scrape_configs"][0]["http_sd_configs"][0]["url"] == "http://127.0.0.1:1/sd"
    assert config["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["127.0.0.1:2"]}]}]
    assert config["global"]["external_labels"] == {"cluster": read_site(SITE).cluster}
    loaded = [path for each in config["rule_files"] for path in Path(each).parent.glob(Path(each).name)]
    names = {
        rule.get("alert")
        for path in loaded
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    }
    assert {each.alert for each in EFFECTS.values()} <= names


def alert(name: str, number: int, *causes: int, **labels: str) -> dict[str, Any]:
    status = {"inhibitedBy": [f"f{each}" for each in causes]}
    times = {"fingerprint": f"f{number}", "startsAt": "2026-01-01T00:00:00Z"}
    return {**times, "labels": {"alertname": name, **labels}, "annotations": {"summary": "Words."}, "status": status}


def test_each_alert_is_worded_once_and_what_did_not_come_as_well() -> None:
    lost, port = announcements(read_site(SITE), 300)[:2]
    watch = Watch([lost, port])
    held = [alert("GpuLost", 1, **lost.labels), alert("GpuXid", 2, 1, **lost.labels), alert("Odd", 3, rack="r1")]
    assert list(watch.lines(held, 70)) == [
        "minute 1: GpuLost on node2, GPU 3, as announced: Words.",
        "minute 1: GpuXid on node2, not sent because of GpuLost",
    ]
    assert list(watch.lines(held, 70 + INHIBITION_GRACE_SECONDS)) == ["minute 1: Odd on rack r1, NOT ANNOUNCED: Words."]
    elsewhere = alert("InfinibandPortDown", 4, instance="node7", device="mlx5_2")
    assert list(watch.lines([*held, elsewhere], 200)) == []
    assert list(watch.lines([*held, elsewhere], 271)) == [
        "minute 3: InfinibandPortDown on node7, NOT ANNOUNCED: Words.",
        "minute 4: InfinibandPortDown on node6, port mlx5_2 DID NOT COME, announced for minute 3",
    ]
    assert (watch.came, watch.missed) == ({lost}, {port})


@pytest.mark.release
def test_the_first_announced_alert_comes_and_nothing_is_left_after_ctrl_c() -> None:
    need("prometheus", left_out="NOTHING shows here that the demo works")
    need("prometheus-alertmanager", left_out="NOTHING shows here that the demo works")
    command = [sys.executable, "-m", "tests.lab.demo", "--minutes", f"{LIVE_SECONDS / 60}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "as announced" in line:
                break
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        said += process.stdout
    assert process.returncode == 0, said
    assert "GpuLost on node2, GPU 3, as announced" in "".join(said)
    assert len(started) == 3
    assert not any(each.is_running() for each in started)
