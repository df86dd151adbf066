"""Data for pictures of the dashboards: what a real Prometheus answers to each query of each panel, as one file.

`python -m tests.dashboards.pictures.collect FILE SECONDS [CLUSTER ...]`; shoot.mjs beside this file draws it
(`make screenshots`). Each board shows a small cluster of its own, in which one thing goes wrong on node-17.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.backends.synthetic.loader import SHIPPED
from tests.dashboards.conftest import NAMES, filled, load
from tests.dashboards.pictures.overviews import early
from tests.dashboards.rig import Server, configuration, started
from tests.servers import free_ports, prometheus
from tests.waiting import wait_until

CLUSTERS = {
    "lost": ("gpu-lost", "GpuLost"),
    "uneven": ("straggler", "GpuImbalance"),
    "feed": ("feed-lost", "RackPowerFeedLost"),
    "port": ("ib-flap", "InfinibandPortDown"),
}
"""The scenario of node-17 in each cluster, and the alert that it leads to."""
SHOWN = {"agents": "lost", "fleet": "lost", "node": "lost", "job": "uneven", "rack": "feed", "fabric": "port"}
"""The cluster that each board shows."""
OPENED = {"rack": "Power shelves and PDUs"}
"""Collapsed rows that a person opens who reads what fires."""
JOB = "6001"
"""The job of the scenario straggler."""
NEIGHBOUR = "healthy-training"
WORKED = 30
"""Seconds of ordinary work before the fault: GpuImbalance asks for them."""
LONGEST = 600
"""Seconds until the alert of a cluster."""
RACK, BUDGET_KW = "r12", 24
LASTS = ("duration: 30s, repeat: 120s", "duration: 1h")
"""The port of ib-flap stays down, so that it is so whenever a picture is taken."""
_CONFIG = """
node: {{name: {node}}}
sampling: {{fast: 1s, slow: 2s, cold: 4s, window: 10s}}
rack: {{name: {rack}, power_budget: {budget}kW, peers: {peers}}}
state_dir: {state}
"""


@contextmanager
def cluster(name: str, folder: Path) -> Iterator[Server]:
    """A server that scrapes node-17 and its neighbour. Each cluster has its own: alerts have no label `cluster`."""
    ports = free_ports(2)
    played, groups = [], []
    for node, port, name_played in zip(("node-17", "node-18"), ports, (CLUSTERS[name][0], NEIGHBOUR), strict=True):
        place = folder / node
        (place / "state").mkdir(parents=True)
        scenario = place / f"{name_played}.yaml"
        scenario.write_text(early((SHIPPED / scenario.name).read_text(), WORKED).replace(*LASTS))
        peers = json.dumps([f"127.0.0.1:{each}" for each in ports])
        text = _CONFIG.format(node=node, rack=RACK, budget=BUDGET_KW, peers=peers, state=place / "state")
        (place / "node.yaml").write_text(text)
        played.append((scenario, place / "node.yaml", port))
        groups.append({"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": "main", "instance": node}})
    config = configuration(folder, []).read_text().replace("scrape_interval: 1s", "scrape_interval: 2s")
    (folder / "targets" / "nodes.yml").write_text(json.dumps(groups))
    with started(played), prometheus(config, folder) as url:
        yield Server(url)


def answers(server: Server, name: str, seconds: int) -> dict[str, Any]:
    """A board with the answers to its queries, by panel and target, as a person sees it who has chosen the faulty."""
    board = load()[name]
    chosen = {"cluster": ".*", "node": "node-17" if name == "node" else ".*", "gpu": ".*", "job": JOB, "rack": RACK}
    results: dict[int, dict[str, Any]] = {}
    for panel in board.panels():
        for target in panel["targets"]:
            expr = filled(target["expr"], chosen)
            found = server.instant(expr) if target["instant"] else server.range(expr, seconds, 2)
            results.setdefault(panel["id"], {})[target["refId"]] = found
    shown = [
        f"{each.get('label') or key}: {chosen[key]}"
        for key, each in board.variables().items()
        if chosen.get(key, ".*") != ".*"
    ]
    return {"board": opened(board.json, OPENED.get(name, "")), "results": results, "chosen": shown}


def opened(board: dict[str, Any], title: str) -> dict[str, Any]:
    """The board with that row open."""
    panels = []
    for panel in board["panels"]:
        open_now = panel["title"] == title
        panels += [panel | {"collapsed": False}, *panel["panels"]] if open_now else [panel]
    return board | {"panels": panels}


def main() -> None:
    """Let each cluster run, one after another, until so many seconds after its alert, then ask."""
    out, seconds, *named = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    made = {}
    for each in named or CLUSTERS:
        with tempfile.TemporaryDirectory() as folder, cluster(each, Path(folder)) as server:
            began = time.monotonic()
            fires = f'ALERTS{{alertname="{CLUSTERS[each][1]}", alertstate="firing"}}'
            wait_until(lambda server=server, fires=fires: server.instant(fires), LONGEST)
            time.sleep(seconds)
            lasted = round(time.monotonic() - began)
            made.update({name: answers(server, name, lasted) for name in NAMES if SHOWN[name] == each})
    out.write_text(json.dumps(made))


if __name__ == "__main__":
    main()
