"""The rules about whole jobs, on real servers, over a job of 1,024 GPUs.

Exactly the slow GPU and the slow rail are named, and after a hang the idle GPU for which all others wait.
Minutes are seconds here, as in `make fleet`: pages change three times as fast, and windows and holds are shorter.
"""

import time
import urllib.request
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

from tests.deployment.fleet_files import FLEET
from tests.lab.fleet.canned_site import HUNG_GPU, SLOW_GPU, SLOW_RAIL, scraping
from tests.lab.fleet.engines import BROUGHT, Engine, Engines
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
Alerts = AbstractSet[tuple[str, str, str, str]]
"""Alert, severity, node, and GPU or device."""
SLOW: Alerts = {
    ("JobGpuSlow", "warning", f"node{SLOW_GPU[0]}:19400", SLOW_GPU[1]),
    ("JobRailSlow", "warning", f"node{SLOW_RAIL[0]}:19400", SLOW_RAIL[1]),
}
HUNG: Alerts = {("JobHung", severity, f"node{HUNG_GPU[0]}:19400", HUNG_GPU[1]) for severity in ("warning", "critical")}


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    for name in RULES:
        text = (FLEET / "rules" / f"{name}.rules.yml").read_text()
        for usual, hurried in HURRIED.items():
            text = text.replace(usual, hurried)
        (tmp_path / f"{name}.rules.yml").write_text(text)
    with Engines(tmp_path) as running:
        yield running


def site(engines: Engines) -> Engine:
    """One job on all nodes, with the faults of canned_site.py."""
    return engines.canned_site(NODES, "--job-nodes", str(NODES), "--pace", str(PACE), "--faults")


def firing(server: Engine) -> Alerts:
    labels = [each["metric"] for each in server.ask('ALERTS{alertstate="firing"}')]
    return {
        (it["alertname"], it["severity"], it.get("instance", ""), it.get("gpu") or it.get("device", ""))
        for it in labels
    }


def test_prometheus_names_the_slow_gpu_the_slow_rail_and_the_awaited_gpu(engines: Engines) -> None:
    need_recent(LEFT_OUT)
    nodes = site(engines)
    server = engines.prometheus("prometheus", scraping(nodes.url, SCRAPE, "*.rules.yml"))
    check_named(server, nodes)


def test_vmalert_names_the_same_over_a_store(engines: Engines) -> None:
    for name in ("victoria-metrics", "vmagent", "vmalert"):
        if not (BROUGHT / name).exists():
            need(name, left_out=LEFT_OUT)
    store = engines.store("store", "-search.latencyOffset=1s")
    config = engines.folder / "vmagent.yml"
    nodes = site(engines)
    config.write_text(scraping(nodes.url, SCRAPE))
    engines.scraper("vmagent", config, f"-remoteWrite.url={store.url}/api/v1/write")
    rules = [f"{engines.folder}/*.rules.yml"]
    engines.vmalert("vmalert", store, rules, f"-evaluationInterval={SCRAPE}", "-notifier.blackhole")
    # A rule sees what others recorded one round later: the alert comes before its cause is known, once without a name.
    # At the usual pace that is over long before the critical one, whose window is five minutes and not thirty seconds.
    check_named(store, nodes, early={("JobHung", severity, "", "") for severity in ("warning", "critical")})


def check_named(server: Engine, nodes: Engine, early: Alerts = frozenset()) -> None:
    """Assert who is named while the job works, and who after it hangs; `early` may fire as well."""
    assert named(server, SLOW) == SLOW
    urllib.request.urlopen(f"{nodes.url}/hang", timeout=10).close()
    assert named(server, HUNG) - SLOW - early == HUNG


def named(server: Engine, wanted: Alerts) -> Alerts:
    """All that fires until what is searched for does, and for some rounds more."""
    seen: Alerts = set()
    until = time.monotonic() + WITHIN_SECONDS
    while not seen >= wanted and time.monotonic() < until:
        time.sleep(1)
        seen |= firing(server)
    time.sleep(ROUNDS_AFTER)
    return seen | firing(server)
