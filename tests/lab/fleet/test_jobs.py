"""The rules about whole jobs, on real servers: in a job of 1,024 GPUs exactly the slow one is named, and the slow rail.

Minutes are seconds here, as in `make fleet`: pages change three times as fast, and windows and holds are shorter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.fleet_files import FLEET, ROOT
from tests.lab.fleet.canned_site import SLOW_GPU, SLOW_RAIL
from tests.lab.fleet.engines import BROUGHT, Engine, Engines, program
from tests.servers import need, need_recent

NODES, PACE, SCRAPE = 128, 3, "5s"
HURRIED = {
    "interval: 30s": f"interval: {SCRAPE}", "interval: 15s": f"interval: {SCRAPE}", "[2m]": "[20s]", "[45s]": "[15s]",
    "[5m]": "[30s]", "[1h]": "[5m]", "[10m]": "[50s]", "offset 10m": "offset 50s", "offset 5m": "offset 25s",
    "offset 1h": "offset 5m", " for: 2m": " for: 10s", " for: 15s": " for: 5s", "_for: 5m": "_for: 25s",
}  # fmt: skip
WITHIN_SECONDS = 180.0
ROUNDS_AFTER = 20.0
"""Seconds for which nothing else may fire."""
LEFT_OUT = "NOTHING shows here that servers judge a job of many nodes"
RULES = ("jobs-shard", "jobs-global")
FOUND = {
    ("JobGpuSlow", f"node{SLOW_GPU[0]}:19400", SLOW_GPU[1]),
    ("JobRailSlow", f"node{SLOW_RAIL[0]}:19400", SLOW_RAIL[1]),
}
CONFIG = """
global: {{scrape_interval: {scrape}, external_labels: {{cluster: main}}}}
{more}
scrape_configs:
- job_name: coldplate
  honor_labels: true
  http_sd_configs: [{{url: "{site}/sd"}}]
"""


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in RULES:
        text = (FLEET / "rules" / f"{name}.rules.yml").read_text()
        for usual, hurried in HURRIED.items():
            text = text.replace(usual, hurried)
        (tmp_path / f"{name}.rules.yml").write_text(text)
    with Engines(tmp_path) as running:
        yield running


def site(engines: Engines) -> Engine:
    """One job on all nodes, with the faults of canned_site.py."""
    words = [sys.executable, "-m", "tests.lab.fleet.canned_site", "--nodes", str(NODES), "--job-nodes", str(NODES)]
    words += ["--pace", str(PACE), "--faults"]
    return engines.start("site", lambda port: [*words, "--port", str(port)], "/sd")


def firing(server: Engine) -> set[tuple[str, str, str]]:
    """Alert, node, and GPU or device."""
    labels = [each["metric"] for each in server.ask('ALERTS{alertstate="firing"}')]
    return {(it["alertname"], it["instance"], it.get("gpu") or it["device"]) for it in labels}


def test_prometheus_names_exactly_the_slow_gpu_and_the_slow_rail_of_a_job(engines: Engines) -> None:
    need_recent(LEFT_OUT)
    rules = 'rule_files: ["*.rules.yml"]'
    server = engines.prometheus("prometheus", CONFIG.format(scrape=SCRAPE, more=rules, site=site(engines).url))
    assert named(server) == FOUND


def test_vmalert_names_the_same_over_a_store(engines: Engines) -> None:
    for name in ("victoria-metrics", "vmagent", "vmalert"):
        if not (BROUGHT / name).exists():
            need(name, left_out=LEFT_OUT)
    store = engines.store("store", "-search.latencyOffset=1s")
    config = engines.folder / "vmagent.yml"
    config.write_text(CONFIG.format(scrape=SCRAPE, more="", site=site(engines).url))
    engines.scraper("vmagent", config, f"-remoteWrite.url={store.url}/api/v1/write")
    words = [program("vmalert"), f"-rule={engines.folder}/*.rules.yml", f"-evaluationInterval={SCRAPE}"]
    words += [f"-{each}.url={store.url}" for each in ("datasource", "remoteWrite", "remoteRead")]
    words += ["-notifier.blackhole", "-disableAlertgroupLabel", "-rule.evalDelay=1s", "-group.maxStartDelay=1s"]
    engines.start("vmalert", lambda port: [*words, f"-httpListenAddr=127.0.0.1:{port}"], "/health")
    assert named(store) == FOUND


def named(server: Engine) -> set[tuple[str, str, str]]:
    """All that fires until what is searched for does, and for some rounds more."""
    seen: set[tuple[str, str, str]] = set()
    until = time.monotonic() + WITHIN_SECONDS
    while not seen >= FOUND and time.monotonic() < until:
        time.sleep(1)
        seen |= firing(server)
    time.sleep(ROUNDS_AFTER)
    return seen | firing(server)
