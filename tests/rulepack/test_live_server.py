"""A node and a server that scrapes it say the same of each alert, live: labels, texts and since when, byte for byte.

Two synthetic nodes on which things go wrong, and the newest Prometheus that `make test` brings. All of them read the
same files: the shipped pack as `coldplate render rules` writes it for a configuration with short holds, each group
every second.

A text with a number in it that goes on moving is about the samples that each of the two saw by its own evaluation.
There the numbers may differ, and nothing else; everywhere else nothing may.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from agent import cli
from agent.backends.synthetic.loader import SHIPPED
from alerts.changes import ANNOTATION as CHANGES
from tests.rack.conftest import Daemon
from tests.servers import fetch, free_ports, need_recent, prometheus
from tests.waiting import wait_until

pytestmark = pytest.mark.release
"""It needs the newest Prometheus, and waits for two daemons."""

NODES = ("node7", "node8")
ONSET = "12s"
"""By then the server has scraped both nodes, also on a machine that is busy."""

FAULTY = Path(__file__).with_name("live.scenario.yaml").read_text()
STEADY = {
    "GpuLost", "GpuPcieDegraded", "GpuRecoveryActionNeeded", "GpuRowRemap",
    "GpuXid", "GpuXidUnknown", "InfinibandRateDegraded", "InfinibandPortDown", "NvLinkDown",
}  # fmt: skip
MOVING = {"GpuThrottled", "GpuImbalance", "GpuHot", "GpuPowerBrake"}
"""Alerts whose value is a mean or a share of time, which goes on moving."""
HELD = sorted(
    name for name in STEADY | MOVING if name not in ("GpuLost", "GpuPowerBrake") and not name.startswith("GpuXid")
)
"""Alerts that wait for some time before they fire, which is short here. `GpuLost` keeps its 5 seconds."""
CONFIG = """
node: {{name: {name}, cluster: east}}
sampling: {{fast: 1s, slow: 2s, cold: 4s, window: 10s}}
backends: {{host: false}}
rules: {{files: [{rules}], override: {{{overrides}}}}}
"""
SERVER = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s, external_labels: {{cluster: east}}}}
rule_files: ["{rules}/*.yml"]
scrape_configs: [{{job_name: coldplate, static_configs: [{targets}]}}]
"""
APART = 4.0
"""Seconds by which the two may see an onset apart; less than the holds, which an alert's beginning must not contain.

A server sees a sample up to a second later, when it scrapes, and evaluates up to a second after that, while the node
tells a time half a second before its own evaluation. A mean may need one sample more.
"""


class Told(NamedTuple):
    state: str
    annotations: dict[str, str]
    value: str
    active_at: float


Alerts = dict[tuple[tuple[str, str], ...], Told]


def alerts_at(url: str) -> Alerts:
    found = json.loads(fetch(f"{url}/api/v1/alerts"))["data"]["alerts"]
    made = {
        tuple(sorted(each["labels"].items())):
            Told(each["state"], each["annotations"], each["value"], seconds(each["activeAt"]))
        for each in found
    }  # fmt: skip
    assert len(made) == len(found), "no two alerts of one answer have the same labels"
    return made


def seconds(text: str) -> float:
    """A time of the API; whoever writes nanoseconds tells more than a datetime holds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z$", r"\1Z", text).replace("Z", "+00:00")).timestamp()


def rendered(folder: Path) -> Path:
    """The pack with short holds as the agent renders it, evaluated each second."""
    overrides = ", ".join(f"{name}: {{for: 6s}}" for name in HELD)
    config = folder / "render.yaml"
    config.write_text(CONFIG.format(name="any", rules="builtin", overrides=overrides))
    rules = folder / "rules"
    assert cli.main(["render", "rules", "--config.file", str(config), "--output", str(rules)]) == 0
    for path in rules.glob("*.yml"):
        path.write_text(re.sub(r"\binterval: \w+", "interval: 1s", path.read_text()))
    return rules


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The addresses of a server, and of the nodes that it scrapes."""
    program = need_recent("NOTHING compares the alerts of a live node with those of a live server here").prometheus
    folder = tmp_path_factory.mktemp("live")
    rules = rendered(folder)
    stall = re.sub(r"at: \d+s", f"at: {ONSET}", (SHIPPED / "checkpoint-stall.yaml").read_text())
    with ExitStack() as stack:
        nodes = []
        for name, port, scenario in zip(NODES, free_ports(len(NODES)), (stall, FAULTY), strict=True):
            path = folder / f"{name}.scenario.yaml"
            path.write_text(scenario)
            config = CONFIG.format(name=name, rules=f'"{rules}/*.yml"', overrides="")
            nodes.append((name, port, Daemon(port, folder, config, "--scenario", str(path))))
            stack.callback(nodes[-1][2].stop)
        targets = ", ".join(
            f"{{targets: ['127.0.0.1:{port}'], labels: {{instance: '{name}:{port}'}}}}" for name, port, _ in nodes
        )
        config = SERVER.format(rules=rules, targets=targets)
        server = stack.enter_context(prometheus(config, folder, program))
        for _, _, node in nodes:
            wait_until(lambda node=node: "msg=serving" in node.log.read_text(), 60)
        yield server, [node.url for _, _, node in nodes]


@pytest.fixture(scope="module")
def told(rig: tuple[str, list[str]]) -> tuple[Alerts, Alerts]:
    """What server and nodes say, at the first look at which all fires that shall and both list the same."""
    server, nodes = rig
    deadline = time.monotonic() + 90
    while True:
        by_server = alerts_at(server)
        by_nodes = {labels: told for node in nodes for labels, told in alerts_at(node).items()}
        if states(by_server) == states(by_nodes) and firing(by_server) >= STEADY | MOVING:
            return by_server, by_nodes
        if time.monotonic() > deadline:
            pytest.fail(f"the server and the nodes do not agree:\n{listed(by_server)}\nand\n{listed(by_nodes)}")
        time.sleep(0.5)


def states(alerts: Alerts) -> dict[tuple[tuple[str, str], ...], str]:
    return {labels: told.state for labels, told in alerts.items()}


def firing(alerts: Alerts) -> set[str]:
    return {name_of(labels) for labels, told in alerts.items() if told.state == "firing"}


def name_of(labels: tuple[tuple[str, str], ...]) -> str:
    return dict(labels)["alertname"]


def listed(alerts: Alerts) -> str:
    return "\n".join(f"{told.state} {dict(labels)}" for labels, told in sorted(alerts.items()))


def still(text: str, name: str) -> str:
    return text if name in STEADY else re.sub(r"\d+(\.\d+)?(?=%| °C| W)", "N", text)


def test_server_and_nodes_say_the_same_of_each_alert(told: tuple[Alerts, Alerts]) -> None:
    """Texts, but for what else changed, which only a node knows; values that stand still; and when each began."""
    by_server, by_nodes = told
    seen = 0
    for labels, node in by_nodes.items():
        server, name = by_server[labels], name_of(labels)
        assert (CHANGES in server.annotations, CHANGES in node.annotations) == (False, node.state == "firing")
        texts = [
            {key: still(text, name) for key, text in each.annotations.items() if key != CHANGES}
            for each in (server, node)
        ]
        assert texts[0] == texts[1]
        if name in STEADY:
            assert server.value == node.value, labels
        if name in STEADY | MOVING:
            seen += 1
            assert abs(node.active_at - server.active_at) <= APART, labels
    assert seen >= len(STEADY | MOVING)
