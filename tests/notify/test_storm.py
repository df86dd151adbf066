"""A rack that fails as a whole, told by each of its nodes, to a real Alertmanager with the example of packaging/.

Only the receivers' addresses and the first waits are changed. What counts is how often people are told.
"""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notify.conftest import Listener
from tests.servers import Alertmanager, fetch
from tests.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "alerts" / "server"
GPUS = 8
LEFT_OUT = "NOTHING shows here how often a storm of alerts wakes people"

Alert = dict[str, Any]


@pytest.fixture
def alertmanager(tmp_path: Path, listener: Listener) -> Iterator[Alertmanager]:
    """A real one with the example, whose first waits are two seconds and whose receivers are the listener."""
    text = re.sub(r"http://\w+\.example", listener.url, (EXAMPLE / "alertmanager.yml").read_text())
    (tmp_path / "coldplate.tmpl").write_text((EXAMPLE / "coldplate.tmpl").read_text())
    real = Alertmanager(tmp_path, re.sub(r"group_wait: \w+", "group_wait: 2s", text), left_out=LEFT_OUT)
    real.start()
    yield real
    real.stop()


def told(listener: Listener) -> list[str]:
    return [post.json["receiver"] for post in listener.posts]


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


def post(real: Alertmanager, alerts: list[Alert]) -> None:
    request = urllib.request.Request(
        f"{real.url}/api/v2/alerts", json.dumps(alerts).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def groups(real: Alertmanager) -> dict[str, list[dict[str, str]]]:
    """What people will be told of, and by whom: the groups in which some alert is not inhibited."""
    found: dict[str, list[dict[str, str]]] = {}
    for each in json.loads(fetch(f"{real.url}/api/v2/alerts/groups?inhibited=false&silenced=false", 60)):
        found.setdefault(each["receiver"]["name"], []).append(each["labels"])
    return found


def test_a_rack_that_fails_wakes_each_person_once(alertmanager: Alertmanager, listener: Listener) -> None:
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
    assert len(alertmanager.alerts()) == len(different)
    assert groups(alertmanager) == expected
    wait_until(lambda: len(listener.posts) >= len(expected))
    for each in alerts:
        post(alertmanager, each)  # told again a minute later, as agents do
    assert sorted(told(listener)) == sorted(expected)
    assert {post.json["receiver"]: [post.json["groupLabels"]] for post in listener.posts} == expected


def test_a_rack_of_which_no_agent_answers_is_one_page_with_one_alert(
    alertmanager: Alertmanager, listener: Listener
) -> None:
    """What its agents said last, and what servers find of its nodes, is told with the rack's or not at all."""
    rack = {"cluster": "c1", "rack": "r12"}
    post(alertmanager, [alert("RackAgentsDown", "critical", {})])
    for number in range(18):
        node = {"instance": f"n{number:02}:19400", "job": "coldplate"}
        post(alertmanager, [alert("AgentDown", "critical", node), *of_node(number)])
    of_nodes = [each for each in alertmanager.alerts() if "instance" in each["labels"]]
    assert len(of_nodes) > 50 * 18
    assert all(each["status"]["inhibitedBy"] for each in of_nodes)
    assert groups(alertmanager)["pager"] == [rack]
    wait_until(lambda: "pager" in told(listener))
    (page,) = [post.json for post in listener.posts if post.json["receiver"] == "pager"]
    assert [each["labels"]["alertname"] for each in page["alerts"]] == ["RackAgentsDown"]


def test_a_pod_that_fails_is_one_page_and_its_racks_are_none(alertmanager: Alertmanager, listener: Listener) -> None:
    whole = {"labels": {"alertname": "ClusterAgentsDown", "severity": "critical", "cluster": "c1"}, "annotations": {}}
    post(alertmanager, [whole])
    for number in range(40):
        lost = alert("RackAgentsDown", "critical", {})
        post(alertmanager, [{**lost, "labels": {**lost["labels"], "rack": f"r{number}"}}])
    wait_until(lambda: listener.posts, 120.0)
    assert groups(alertmanager) == {"pager": [{"cluster": "c1"}]}
    assert told(listener) == ["pager"]


def test_nodes_of_no_rack_are_a_page_each_and_two_racks_are_two(alertmanager: Alertmanager, listener: Listener) -> None:
    lost = alert("GpuLost", "critical", {"instance": "n1:19400"}, gpu="0")
    for changed in ({"rack": "r12"}, {"rack": "r13"}, {"rack": ""}, {"rack": "", "instance": "n2:19400"}):
        post(alertmanager, [{**lost, "labels": {**lost["labels"], **changed}}])
    wait_until(lambda: len(listener.posts) == 4)
    assert told(listener) == ["pager"] * 4


def test_what_follows_from_a_lost_or_idle_gpu_is_not_reported_and_what_does_not_is(alertmanager: Alertmanager) -> None:
    one = {"instance": "n1:19400", "uuid": "GPU-1"}
    post(
        alertmanager,
        [
            alert("GpuLost", "critical", one, gpu="1"),
            alert("GpuHot", "warning", one, gpu="1"),
            alert("GpuHot", "warning", {**one, "uuid": "GPU-2"}, gpu="2"),
            alert("GpuHot", "warning", {**one, "instance": "n2:19400"}, gpu="1"),
            alert("GpuImbalance", "warning", one, gpu="3"),
            alert("JobRailSlow", "warning", {"instance": "n1:19400"}, device="mlx5_3"),
            alert("JobRailSlow", "warning", {"instance": "n2:19400"}, device="mlx5_3"),
        ],
    )

    def shown() -> set[tuple[str, str]]:
        found = alertmanager.alerts("?inhibited=false&filter=alertname%3D~%22GpuHot%7CJobRailSlow%22")
        return {(each["labels"]["instance"], each["labels"].get("gpu", "a port")) for each in found}

    # Alertmanager takes causes in some time after it has answered.
    wait_until(lambda: shown() == {("n1:19400", "2"), ("n2:19400", "1"), ("n2:19400", "a port")}, 5)
