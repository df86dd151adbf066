"""A rack that fails as a whole, told by each of its nodes, to a real Alertmanager with the example of packaging/.

Only the receivers' addresses and the first waits are changed. What counts is how often people are told.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.servers import fetch, free_port, need, program
from tests.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "packaging" / "alertmanager"
GPUS = 8
LEFT_OUT = "NOTHING shows here how often a storm of alerts wakes people"

Alert = dict[str, Any]


class Pagers(ThreadingHTTPServer):
    """All receivers: keeps each notification with the name of the receiver that it went to."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Taking)
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Pagers)
        self.server.told.append((body["receiver"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def pagers() -> Iterator[Pagers]:
    server = Pagers()
    yield server
    server.end()


@pytest.fixture
def alertmanager(tmp_path: Path, pagers: Pagers) -> Iterator[str]:
    """A real one with the example, whose first waits are two seconds."""
    text = re.sub(r"http://\w+\.example", pagers.url, (EXAMPLE / "alertmanager.yml").read_text())
    text = re.sub(r"group_wait: \w+", "group_wait: 2s", text)
    (tmp_path / "alertmanager.yml").write_text(text)
    (tmp_path / "coldplate.tmpl").write_text((EXAMPLE / "coldplate.tmpl").read_text())
    port = free_port()
    command = [
        need("prometheus-alertmanager", "alertmanager", left_out=LEFT_OUT),
        f"--config.file={tmp_path / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with program(command, f"{url}/-/ready", tmp_path / "log"):
        yield url


def of_node(number: int) -> Iterator[Alert]:
    """What the agent of one node tells when its rack loses a feed and then its coolant, with a job on all GPUs."""
    node = {"instance": f"n{number:02}:19400", "job": "coldplate"}
    for gpu in range(GPUS):
        where = {**node, "gpu": str(gpu), "uuid": f"GPU-{number:02}-{gpu}"}
        yield alert("GpuThrottled", "critical", where, reason="hw_thermal_slowdown")
        yield alert("GpuHot", "warning", where, sensor="core")
        yield alert("GpuStraggler", "warning", where, scheduler="slurm", job_id="4711")
        yield alert("GpuXidInfo", "info", where, xid="45")
        yield alert("InfinibandPortDown", "critical", node, device=f"mlx5_{gpu}", port="1")
        yield alert("PortFlapping", "warning", node, device=f"mlx5_{gpu}", port="1")
    yield alert("GpuPowerBrake", "critical", node)
    yield alert("GpuLost", "critical", node, gpu="3", uuid=f"GPU-{number:02}-3")
    yield alert("GpuXid", "critical", node, gpu="3", uuid=f"GPU-{number:02}-3", action="node_reboot")
    yield alert("GpuJobSyncStall", "critical", {"instance": node["instance"]}, scheduler="slurm", job_id="4711")
    yield alert("NodePowerOverShare", "warning", {**node, "source": "ipmi"})
    yield alert("BackendFailing", "warning", node, backend="power")
    yield alert("MetricsMissing", "warning", {"instance": node["instance"]}, reason="timeout")
    # Of the rack: every node says the same, word for word.
    yield alert("RackPowerHigh", "critical", {}, level="trip")
    yield alert("RackPowerSwing", "warning", {}, kind="swing")
    yield alert("RackPowerSwing", "info", {}, kind="ramp")


def alert(name: str, severity: str, where: dict[str, str], **labels: str) -> Alert:
    all_labels = {"alertname": name, "severity": severity, "cluster": "c1", "rack": "r12", **where, **labels}
    return {"labels": all_labels, "annotations": {"summary": f"{name} of {all_labels.get('instance', 'the rack')}"}}


def post(url: str, alerts: list[Alert]) -> None:
    request = urllib.request.Request(
        f"{url}/api/v2/alerts", json.dumps(alerts).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def groups(url: str) -> dict[str, list[dict[str, str]]]:
    """What people will be told of, and by whom: the groups in which some alert is not inhibited."""
    found: dict[str, list[dict[str, str]]] = {}
    for each in json.loads(fetch(f"{url}/api/v2/alerts/groups?inhibited=false&silenced=false", 60)):
        found.setdefault(each["receiver"]["name"], []).append(each["labels"])
    return found


def test_a_rack_that_fails_wakes_each_person_once(alertmanager: str, pagers: Pagers) -> None:
    nodes = 18
    alerts = [list(of_node(number)) for number in range(nodes)]
    for each in alerts:
        post(alertmanager, each)
    rack = {"cluster": "c1", "rack": "r12"}
    expected = {
        "pager": [rack],
        "facility-pager": [rack],
        "monitoring": [{"cluster": "c1", "alertname": "BackendFailing"}],
    }
    different = {json.dumps(each["labels"], sort_keys=True) for node in alerts for each in node}
    assert len(different) > 50 * nodes
    assert len(json.loads(fetch(f"{alertmanager}/api/v2/alerts", 60))) == len(different)
    assert groups(alertmanager) == expected
    wait_until(lambda: len(pagers.told) >= len(expected))
    for each in alerts:
        post(alertmanager, each)  # told again a minute later, as agents do
    assert sorted(receiver for receiver, _ in pagers.told) == sorted(expected)
    assert {receiver: [body["groupLabels"]] for receiver, body in pagers.told} == expected


def test_a_rack_of_which_no_agent_answers_is_one_page_with_one_alert(alertmanager: str, pagers: Pagers) -> None:
    """What its agents said last, and what servers find of its nodes, is told with the rack's or not at all."""
    rack = {"cluster": "c1", "rack": "r12"}
    post(alertmanager, [alert("RackAgentsDown", "critical", {})])
    for number in range(18):
        node = {"instance": f"n{number:02}:19400", "job": "coldplate"}
        post(alertmanager, [alert("AgentDown", "critical", node), *of_node(number)])
    of_nodes = [each for each in json.loads(fetch(f"{alertmanager}/api/v2/alerts", 60)) if "instance" in each["labels"]]
    assert len(of_nodes) > 50 * 18
    assert all(each["status"]["inhibitedBy"] for each in of_nodes)
    assert groups(alertmanager)["pager"] == [rack]
    wait_until(lambda: any(receiver == "pager" for receiver, _ in pagers.told))
    (page,) = [body for receiver, body in pagers.told if receiver == "pager"]
    assert [each["labels"]["alertname"] for each in page["alerts"]] == ["RackAgentsDown"]


def test_a_pod_that_fails_is_one_page_and_its_racks_are_none(alertmanager: str, pagers: Pagers) -> None:
    whole = {"labels": {"alertname": "ClusterAgentsDown", "severity": "critical", "cluster": "c1"}, "annotations": {}}
    post(alertmanager, [whole])
    for number in range(40):
        lost = alert("RackAgentsDown", "critical", {})
        post(alertmanager, [{**lost, "labels": {**lost["labels"], "rack": f"r{number}"}}])
    wait_until(lambda: pagers.told, 120.0)
    assert groups(alertmanager) == {"pager": [{"cluster": "c1"}]}
    assert [receiver for receiver, _ in pagers.told] == ["pager"]


def test_nodes_of_no_rack_are_a_page_each_and_two_racks_are_two(alertmanager: str, pagers: Pagers) -> None:
    lost = alert("GpuLost", "critical", {"instance": "n1:19400"}, gpu="0")
    for changed in ({"rack": "r12"}, {"rack": "r13"}, {"rack": ""}, {"rack": "", "instance": "n2:19400"}):
        post(alertmanager, [{**lost, "labels": {**lost["labels"], **changed}}])
    wait_until(lambda: len(pagers.told) == 4)
    assert [receiver for receiver, _ in pagers.told] == ["pager"] * 4


def test_what_follows_from_a_lost_gpu_is_not_reported_and_what_does_not_is(alertmanager: str) -> None:
    one = {"instance": "n1:19400", "uuid": "GPU-1"}
    post(alertmanager, [
        alert("GpuLost", "critical", one, gpu="1"),
        alert("GpuHot", "warning", one, gpu="1"),
        alert("GpuHot", "warning", {**one, "uuid": "GPU-2"}, gpu="2"),
        alert("GpuHot", "warning", {**one, "instance": "n2:19400"}, gpu="1"),
    ])  # fmt: skip
    found = json.loads(fetch(f"{alertmanager}/api/v2/alerts?inhibited=false&filter=alertname%3DGpuHot"))
    shown = {(each["labels"]["instance"], each["labels"]["gpu"]) for each in found}
    assert shown == {("n1:19400", "2"), ("n2:19400", "1")}
