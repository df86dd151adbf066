"""Synthetic nodes on which things go wrong, and a real Prometheus that scrapes them as packaging/ says."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.daemon.conftest import RunningDaemon
from tests.dashboards.conftest import ROOT
from tests.servers import fetch, free_ports, need, prometheus
from tests.waiting import wait_until

PACKAGED = ROOT / "packaging" / "prometheus"

CONFIG = """
sampling: {{fast: 1s, slow: 2s, cold: 4s, window: 10s}}
rack:
  name: r12
  power_budget: 2{number}kW
  feeds: {{a: 14kW, b: 14kW}}
  breakers: {{a: {{class: ul489, rating: 5kW}}}}
  node_nameplate: 10.2kW
  peers: ["127.0.0.1:{ports[0]}", "127.0.0.1:{ports[1]}", "127.0.0.1:{ports[2]}"]
notify: {{webhook: {{urls: ["http://127.0.0.1:{ports[2]}/"], timeout: 1s}}}}
state_dir: {state}
"""
DOWN = 2
"""The third port belongs to nobody: a node that is down, and a receiver that does not answer.

The two others do not agree about the budget.
"""


@contextmanager
def started(played: Iterable[tuple[Path, Path, int]]) -> Iterator[list[RunningDaemon]]:
    """Run a daemon for each scenario and configuration, at its port; its log lies beside its configuration."""
    with ExitStack() as stack:
        running = []
        for scenario, config, port in played:
            words = ["--web.listen-address", f"127.0.0.1:{port}", "--scenario", str(scenario)]
            running.append(
                RunningDaemon([*words, "--config.file", str(config)], config.with_name(f"{scenario.stem}.log"))
            )
            stack.callback(running[-1].stop)
        for each in running:
            each.await_url()
        yield running


def hurried(text: str) -> str:
    """A rule file in which minutes are seconds: every group each second, no `for`, short windows."""
    text = re.sub(r"interval: \w+", "interval: 1s", text)
    text = re.sub(r"\n(\s+)for: \w+", r"\n\1for: 1s", text)
    text = re.sub(r"offset \w+", "offset 5s", text)
    return re.sub(r"\[\d+[mh]\]", "[10s]", text)


def promtool(*words: str) -> str:
    """What promtool prints, which must be content."""
    done = subprocess.run([need("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Server:
    """A real Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        return json.loads(fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", 10))["data"]

    def instant(self, expr: str) -> list[Any]:
        return list(self.get("query", query=expr)["result"])

    def range(self, expr: str, seconds: int = 20, step: int = 1) -> list[Any]:
        now = time.time()
        times = {"start": str(now - seconds), "end": str(now), "step": str(step)}
        return list(self.get("query_range", query=expr, **times)["result"])


def configuration(folder: Path, ports: list[int]) -> Path:
    """What is packaged, for these targets and at this pace."""
    (folder / "rules").mkdir()
    (folder / "targets").mkdir()
    for path in (*(ROOT / "alerts" / "rules").glob("*.yml"), ROOT / "alerts" / "server" / "fleet.rules.yml"):
        (folder / "rules" / path.name).write_text(hurried(path.read_text()))
    targets = json.dumps([f"127.0.0.1:{port}" for port in ports])
    (folder / "targets" / "nodes.yml").write_text(f"- targets: {targets}\n  labels: {{cluster: main}}\n")
    text = (PACKAGED / "prometheus.yml").read_text()
    text = text.replace("15s", "1s").replace("/etc/coldplate/rules", str(folder / "rules"))
    (folder / "prometheus.yml").write_text(text)
    return folder / "prometheus.yml"


@contextmanager
def scraped(folder: Path) -> Iterator[tuple[Server, list[str]]]:
    """A server that scrapes two nodes and misses a third; and their addresses."""
    ports = free_ports(3)
    played = []
    for number, scenario in enumerate(("faulty", "tray")):
        config = folder / f"node{number}.yaml"
        config.write_text(CONFIG.format(ports=ports, number=number, state=folder / f"state{number}"))
        (folder / f"state{number}").mkdir()
        played.append((ROOT / "tests" / "dashboards" / f"{scenario}.yaml", config, ports[number]))
    with started(played), prometheus(configuration(folder, ports).read_text(), folder) as url:
        server = Server(url)
        wait_until(lambda: server.instant("count(coldplate_gpu_up) == 12"), 60)
        yield server, [f"127.0.0.1:{port}" for port in ports]


def values(nodes: list[str], board: str) -> dict[str, str]:
    """What a person would have chosen: the faulty node, its rack, its job, and all where there are several."""
    return {"cluster": ".*", "node": nodes[0] if board == "node" else ".*", "gpu": ".*", "job": "7001", "rack": "r12"}
