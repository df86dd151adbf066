"""A simulated site under a real Prometheus: what a scrape of one of its nodes costs, and what a node takes.

`python -m tests.lab.bench.whole_site --nodes 500 --seconds 150`; docs/simulate.md has figures. Both programs share the
machine, as they would where a fleet is tried out. Compare seconds of CPU: latencies depend on who else is busy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

import psutil

from tests.servers import fetch, free_port, prometheus

CONFIG = """
scrape_configs:
- job_name: coldplate
  scrape_interval: {interval}s
  honor_labels: true
  http_sd_configs: [{{url: "http://127.0.0.1:{port}/sd"}}]
"""
INTERVAL_SECONDS = 15
WARM_SECONDS = 45.0
QUERIES = {
    "nodes that answered every scrape": "count(min_over_time(up[{span}]) == 1) or vector(0)",
    "samples of a page": "avg(scrape_samples_scraped)",
    "median of scrapes, seconds": "quantile(0.5, quantile_over_time(0.5, scrape_duration_seconds[{span}]))",
    "p99 of scrapes, seconds": "quantile(0.99, quantile_over_time(0.99, scrape_duration_seconds[{span}]))",
    "slowest scrape, seconds": "max(max_over_time(scrape_duration_seconds[{span}]))",
}


def measure(nodes: int, seconds: int, folder: Path) -> None:
    """Run both programs for so long, and print what they took."""
    port = free_port()
    words = ["--nodes", str(nodes), "--nodes-per-job", "16", "--rack-budget", "40.8kW"]
    command = [sys.executable, "-m", "agent.cli", "simulate", *words, "--web.listen-address", f"127.0.0.1:{port}"]
    began = time.monotonic()
    site = psutil.Process(subprocess.Popen(command).pid)
    try:
        await_site(port)
        print(
            f"made in {_cpu(site):.1f} s of CPU, {time.monotonic() - began:.1f} s; {_pss(site) / nodes:.2f} MiB a node"
        )
        with prometheus(CONFIG.format(interval=INTERVAL_SECONDS, port=port), folder) as server:
            scraper = next(each for each in psutil.Process().children() if "prometheus" in each.name())
            time.sleep(WARM_SECONDS)
            before, at = (_cpu(site), _cpu(scraper)), time.monotonic()
            time.sleep(seconds)
            span = time.monotonic() - at
            ours, theirs = _cpu(site) - before[0], _cpu(scraper) - before[1]
            scrapes = nodes * span / INTERVAL_SECONDS
            print(
                f"site: {ours / span:.1%} of a core, {1e3 * ours / scrapes:.1f} ms a scrape, PSS {_pss(site):.0f} MiB"
            )
            print(f"prometheus: {theirs / span:.1%} of a core, PSS {_pss(scraper):.0f} MiB")
            for what, query in QUERIES.items():
                print(f"{what}: {_ask(server, query.format(span=f'{seconds}s')):.3g}")
    finally:
        site.terminate()
        site.wait(30)


def await_site(port: int) -> None:
    """Wait until the nodes are made."""
    while True:
        try:
            fetch(f"http://127.0.0.1:{port}/-/ready")
            return
        except OSError:
            time.sleep(0.1)


def _ask(server: str, query: str) -> float:
    found = json.loads(fetch(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}", 30))
    return float(found["data"]["result"][0]["value"][1])


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _pss(process: psutil.Process) -> float:
    """MiB."""
    return float(process.memory_full_info().pss) / 2**20


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.whole_site")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=150)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(parsed.nodes, parsed.seconds, Path(folder))


if __name__ == "__main__":
    main()
