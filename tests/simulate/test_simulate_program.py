"""The whole program, and a real Prometheus that finds its nodes."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import urllib.parse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import bcrypt
import pytest

from agent import cli
from agent.commands.simulate import site_service
from tests import warm
from tests.servers import fetch, free_port, program, prometheus
from tests.waiting import wait_until

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: coldplate
  honor_labels: true
  basic_auth: &login {{username: scraper, password: secret}}
  http_sd_configs: [{{url: "http://127.0.0.1:{port}/sd", basic_auth: *login}}]
"""
SITE = "cluster: east\nnodes_per_job: 2\nracks: [{count: 2, nodes: 2, power_budget: 25kW}]\n"
SECRET = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
LOST = "faults: [{kind: power-loss, node: node4}]\n"


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "agent.cli", "simulate", *map(str, words)]


def site(folder: Path, port: int, *words: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The program on this port, once it serves; it is ended if nobody else has."""
    words = (*words, "--web.listen-address", f"127.0.0.1:{port}")
    return program(command(*words), f"http://127.0.0.1:{port}/-/healthy", folder / "simulate.log")


def ask(server: str, query: str) -> list[Any]:
    found = json.loads(fetch(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
    return list(found["data"]["result"])


def awaited(server: str, query: str) -> list[Any]:
    """What a query gives as soon as it gives anything."""
    wait_until(lambda: ask(server, query))
    return ask(server, query)


def test_prometheus_finds_and_scrapes_every_node(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "site.yaml").write_text(SITE + LOST)
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{scraper: '{SECRET}'}}\n")
    words = [tmp_path / "site.yaml", "--web.config.file", tmp_path / "web.yml"]
    with site(tmp_path, port, *words), prometheus(CONFIG.format(port=port), tmp_path) as server:
        with pytest.raises(HTTPError, match="401"):
            fetch(f"http://127.0.0.1:{port}/sd")
        awaited(server, "count(up) == 4 and sum(up) == 3")
        gpus = ask(server, 'count by (instance, rack, cluster, topology) (coldplate_gpu_up{job="coldplate"})')
        assert sorted((each["metric"]["instance"], each["metric"]["rack"], each["value"][1]) for each in gpus) == [
            ("node1", "r1", "8"), ("node2", "r1", "8"), ("node3", "r2", "8"),
        ]  # fmt: skip
        assert {(each["metric"]["cluster"], each["metric"]["topology"]) for each in gpus} == {("east", "dgx-h100")}
        (down,) = ask(server, "up == 0")
        assert down["metric"]["instance"] == "node4"
        assert ask(server, 'count({exported_rack!=""})') == []
        reporting = ask(server, "max by (rack) (coldplate_rack_nodes_reporting)")
        assert {each["metric"]["rack"]: each["value"][1] for each in reporting} == {"r1": "2", "r2": "1"}


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    for end in (signal.SIGTERM, signal.SIGINT):
        with site(tmp_path, free_port(), "--nodes", 1) as process:
            process.send_signal(end)
            assert process.wait(20) == 0
        told = (tmp_path / "simulate.log").read_text()
        assert [line.partition("msg=")[2].split()[0] for line in told.splitlines()] == ['"making', "serving", "stopped"]


def simulated(words: list[str]) -> tuple[int, str]:
    """Status and log of a site whose log says after each node how many are made."""
    site_service.MADE = 1
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        return cli.main(["simulate", *words]), error.getvalue()


def test_the_log_says_how_many_nodes_are_made() -> None:
    status, log = warm.call(simulated, ["--nodes", "3", "--web.listen-address", "127.0.0.1:0", "--duration", "1ms"])
    lines = [line.partition("msg=")[2] for line in log.splitlines()]
    assert status == 0
    assert [line.partition(" made=")[2] for line in lines] == ["", "1 nodes=3", "2 nodes=3", "", ""]
    assert lines[0].endswith("nodes=3") and lines[3].startswith("serving nodes=3")


def test_it_ends_after_its_duration() -> None:
    words = command("--nodes", 1, "--web.listen-address", "127.0.0.1:0", "--duration", "1s", "--log.level", "error")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    port = free_port()
    with site(tmp_path, port, "--nodes", 1):
        words = command("--nodes", 1, "--web.listen-address", f"127.0.0.1:{port}")
        second = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.stderr
