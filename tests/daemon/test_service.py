"""The daemon as a service: start, reload, stop, and systemd's messages."""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests import warm
from tests.daemon.conftest import RunningDaemon, Start
from tests.daemon.test_mistakes import CONFIGURATIONS
from tests.servers import ended

ROOT = Path(__file__).resolve().parents[2]


CONFIG = "backends: {devices: none}\n"
FURTHER_HEAP = 64 << 20
"""What glibc reserves for each heap but the first, and at a multiple of it."""


@pytest.fixture(scope="module")
def shared(start_shared: Start) -> RunningDaemon:
    """A daemon without devices for tests that reload it."""
    return start_shared("--web.enable-lifecycle", "--log.format", "json", config=CONFIG)


@pytest.fixture
def path(shared: RunningDaemon) -> Path:
    """The configuration file, as it was at the start."""
    file = shared.log.with_suffix(".yaml")
    file.write_text(CONFIG)
    return file


def test_its_threads_have_no_heaps_of_their_own_and_it_takes_its_worker_along(start: Start) -> None:
    """Whatever number of threads there is, glibc keeps one heap for all of them; started as its user starts it."""
    daemon = start("--scenario", "idle", forked=False)
    daemon.get()
    if platform.libc_ver()[0] == "glibc":
        assert further_heaps(Path(f"/proc/{daemon.process.pid}/maps").read_text()) == []
    worker = daemon.worker_pid
    assert daemon.stop() == 0
    assert ended(worker)
    assert "Traceback" not in daemon.log.read_text()


@pytest.fixture(scope="module")
def straggler(start_shared: Start) -> RunningDaemon:
    """One with synthetic GPUs that a scrape leaves out."""
    return start_shared("--scenario", "straggler", config="metrics: {exclude: ['coldplate_gpu_*']}\n")


def test_the_first_lines_of_a_synthetic_node_announce_its_faults(straggler: RunningDaemon) -> None:
    lines = straggler.log.read_text().splitlines()
    assert "SYNTHETIC" in lines[0] and "scenario=straggler" in lines[0]
    assert re.search(r"scheduled fault: straggler of GPU 5 starts at \d\d:\d\d:\d\d UTC, in 660 s", lines[1])
    assert any("sampling 8 GPUs: NVIDIA H100" in line for line in lines)
    assert 'coldplate_synthetic_info{scenario="straggler"} 1' in straggler.get()


def test_what_a_scrape_leaves_out_is_no_trouble_of_the_node(straggler: RunningDaemon) -> None:
    assert not any(name.startswith("coldplate_gpu_") for name, _ in straggler.page())
    assert "coldplate_gpu_up" in straggler.get("/api/v1/snapshot")
    remembered = json.loads(straggler.get("/api/v1/history"))["data"]
    assert {each["labels"]["gpu"] for each in remembered["series"]} == {str(number) for number in range(8)}
    page = straggler.get("/")
    assert "8 of 8 answer" in page
    assert "not all rules have been evaluated yet: what would fire is not known" in page, "it has just started"


def test_systemd_is_notified_of_each_stage_and_its_watchdog_between_ticks(start: Start) -> None:
    """At a socket with an abstract name, the end of which is no trouble."""
    name = f"coldplate-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(8)

        def hear(word: str) -> str:
            while word not in (heard := listener.recv(4096).decode()):
                pass
            return heard

        config = "backends: {devices: none}\nsampling: {fast: 60s, slow: 60s}\n"
        daemon = start(config=config, environment={"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "3000000"})
        assert "STATUS=0 GPUs" in hear("READY=1")
        for _ in range(3):
            hear("WATCHDOG=1")
        daemon.process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in hear("RELOADING=1")
        hear("READY=1")
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log.read_text()


def test_the_worker_runs_our_code_wherever_the_agent_is_started(tmp_path: Path) -> None:
    """A directory that holds an `agent` of its own must not be executed."""
    trap = tmp_path / "agent" / "worker"
    trap.mkdir(parents=True)
    (tmp_path / "json.py").write_text("raise SystemExit('trap')")
    for package in (trap.parent, trap):
        (package / "__init__.py").write_text("raise SystemExit('trap')")
    (trap / "__main__.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    program = f"import sys; sys.path[0] = {str(ROOT)!r}; from agent.cli import entry; entry()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "once", "--scenario", "idle"],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
        check=False,
    )
    assert "coldplate_gpu_up" in ended.stdout, ended.stderr
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(("text", "message"), CONFIGURATIONS.items())
def test_a_reload_refuses_what_a_start_would_refuse(shared: RunningDaemon, path: Path, text: str, message: str) -> None:
    path.write_text(text + "\n")
    status, answer = shared.reload()
    assert (status, message in answer) == (500, True)


RACK = "rack: {name: r12, power_budget: 40.8kW, nodes_expected: 1, feeds: {a: 30kW}, peers: ['n2:1']}\n"


def test_once_prints_text_or_json_or_writes_a_textfile(tmp_path: Path) -> None:
    target, config = tmp_path / "coldplate.prom", tmp_path / "c.yaml"
    config.write_text(RACK)
    given = (
        ["--scenario", "straggler"],
        ["--backend", "none", "--format", "json"],
        ["--backend", "none", "--textfile", str(target)],
        ["--backend", "none", "--config.file", str(config)],
    )
    ended = warm.commands([["once", *each] for each in given])
    assert [done.status for done in ended] == [0] * 4, ended
    text, document, _, rack = (done.output.decode() for done in ended)
    assert text.count("\ncoldplate_gpu_power_watts{") == 8
    assert json.loads(document)["status"] == "success"
    assert "coldplate_node_memory_total_bytes" in target.read_text()
    assert {line for line in rack.splitlines() if line.startswith("coldplate_rack_")} == {
        'coldplate_rack_power_budget_watts{rack="r12"} 40800.0',
        'coldplate_rack_nodes_expected{rack="r12"} 1',
        'coldplate_rack_feed_limit_watts{rack="r12",feed="a"} 30000.0',
    }


def test_a_command_ends_its_output_quietly_when_it_is_not_read() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "agent.cli", "render", "metrics"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        cwd=ROOT,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in ended.stderr


def further_heaps(maps: str) -> list[str]:
    """Where the further heaps in ``maps`` begin: used pages, and beside them what is reserved but not used yet."""
    regions = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ 00:00 0\s*$", maps, re.MULTILINE)
    assert regions
    return [
        begin
        for (begin, end, used), (rest, last, reserved) in pairwise(regions)
        if (used, reserved, end) == ("rw-p", "---p", rest)
        if int(begin, 16) % FURTHER_HEAP == 0 and int(last, 16) - int(begin, 16) == FURTHER_HEAP
    ]
