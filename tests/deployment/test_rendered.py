"""What helm makes of every value set, judged by helm, Kubernetes's schemas, promtool and the agent; its privileges."""

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config.reading import load
from agent.wiring.identity import SCRAPE_JOB, instance
from agent.wiring.start_checks import check
from tests.deployment.chart_files import CHART, ROOT
from tests.deployment.config_schema import OF_THE_CHART
from tests.deployment.rendering import (
    VALUE_SETS,
    VALUES,
    container,
    helm,
    manifests,
    objects,
    of_kind,
    pod,
    render,
    written,
)
from tests.servers import need

pytestmark = pytest.mark.release
"""It needs helm."""

LARGEST = 2**20
"""Bytes that Kubernetes takes in a ConfigMap, and in the secret in which helm keeps a release."""
LIBRARY = ROOT / ".programs" / "deployers" / "library"
EVERY_KEY = ROOT / "tests" / "lib" / "every-key.yaml"


@pytest.mark.parametrize("values", VALUE_SETS)
def test_helm_finds_nothing_to_criticise(values: str) -> None:
    done = helm("lint", "--strict", CHART, "--values", VALUES / f"{values}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_the_notes_have_the_command_for_pods_and_the_labels_for_nodes() -> None:
    release = ("install", "cold", CHART, "--dry-run=client", "--values", VALUES / "trial.yaml")
    command = "doctor --config.file /etc/coldplate/made/coldplate.yaml"
    notes = helm(*release).stdout.partition("NOTES:")[2]
    assert f"{command}\n" in notes
    assert "0 pods" not in notes
    more = helm(*release, "--set", "privileges.hostSysfs=true,nodeSelector.a=b").stdout
    assert f"{command} --path.sysfs /host/sys\n" in more
    assert '0 pods: no node has the labels {"a":"b"' in more


def test_every_object_is_one_that_kubernetes_knows() -> None:
    """By the published schemas of the oldest version that the chart supports, and of the newest that is known."""
    if not LIBRARY.is_dir():
        need("the schemas of Kubernetes", left_out="NO object is held against them here; run `make deployers`")
    kinds = {"ConfigMap", "DaemonSet", "NetworkPolicy", "Service", "ServiceAccount"}
    every = [each for values in VALUE_SETS for each in manifests(values) if each["kind"] in kinds]
    assert {each["kind"] for each in every} == kinds
    program = (
        "import json, sys; from kubernetes_validate import validate\n"
        "for each in json.load(sys.stdin):\n"
        "    for version in ('1.25', '1.37'): validate(each, version, strict=True)\n"
    )
    small = [each for each in every if each["kind"] != "ConfigMap" or len(each["data"]) != 1]  # a dashboard is one text
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(small),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(LIBRARY)},
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_names_are_unique_and_volumes_are_there() -> None:
    for values in VALUE_SETS:
        found = manifests(values)
        names = [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in found]
        assert len(names) == len(set(names)), values
        spec = pod(found)
        volumes = [each["name"] for each in spec["volumes"]]
        assert len(volumes) == len(set(volumes)), values
        for each in (*spec["containers"], *spec["initContainers"]):
            assert {mount["name"] for mount in each["volumeMounts"]} <= set(volumes), values


@pytest.mark.parametrize("values", VALUE_SETS)
def test_the_agent_takes_the_configuration_of_a_node(values: str, tmp_path: Path) -> None:
    found = manifests(values)
    config = load(written(found, "node-2.example", tmp_path, {} if values == "inventory" else None))
    check(config)
    (port,) = container(found)["ports"]
    assert instance(config) == f"node-2.example:{port['containerPort']}"
    assert config.rack.name == ("r12" if values == "everything" else None)


def test_a_node_reads_its_rack_and_no_other_from_the_values_or_an_inventory(tmp_path: Path) -> None:
    found = manifests("everything")
    one, other, none = (load(written(found, each, tmp_path / each)) for each in ("node-4", "node-5", "node-44"))
    assert one.rack.name == "r12"
    assert one.rack.peers == ("node-1:19400", "node-2.example:19400", "node-3:19400", "node-4:19400")
    assert (one.rack.power_budget, one.rack.node_nameplate, one.rack.peer.scheme) == (40_800, 10_200, "https")
    assert (other.rack.name, other.rack.power_budget, other.rack.nodes_expected) == ("R13", 20_000, 2)
    assert other.rack.peers == ("10.0.0.5:19400", "10.0.0.6:19400")
    assert (none.rack.name, none.rack.peers, none.node.name) == (None, (), "node-44")
    assert {each.node.cluster for each in (one, other, none)} == {"east"}
    racks = {"nodes": "node-1 a\nnode-2 b", "a.yaml": "rack: {name: a}\n", "b.yaml": "rack: {name: b}\n"}
    found = manifests("inventory")
    names = [load(written(found, each, tmp_path / each, racks)).rack.name for each in ("node-1", "node-2", "node-3")]
    assert names == ["a", "b", None]


def test_every_key_of_the_configuration_comes_through(tmp_path: Path) -> None:
    """helm turns values into JSON and back: keys that are numbers, and texts with braces, are still what they were."""
    config = yaml.safe_load(EVERY_KEY.read_text())
    for path in OF_THE_CHART:
        *above, last = path.split(".")
        section = config
        for part in above:
            section = section[part]
        del section[last]
    found = objects(
        render("default", "--values", "-", given=json.dumps({"config": config, "racks": {"r": {"nodes": ["n"]}}}))
    )
    plain = tmp_path / "plain.yaml"
    made: dict[str, dict[str, Any]] = {
        "node": {"name": "n"},
        "rack": {"name": "r", "peers": ["n:19400"]},
        "web": {"listen": [":19400"]},
    }
    for name, section in made.items():
        config[name] = {**config[name], **section}
    plain.write_text(yaml.safe_dump({**config, "state_dir": "/var/lib/coldplate"}))
    assert load(written(found, "n", tmp_path / "n")) == load(plain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prometheusRules": {}}, "prometheusRules"),
        ({"privileges": {"hostNetwrk": False}}, "hostNetwrk"),
        ({"config": {"rules": {"overide": {}}}}, "overide"),
        ({"config": {"web": {"listen": [":1"]}}}, "listen"),
        ({"racks": {"r1": {"nodes": ["a"], "powerbudget": "4kW"}}}, "powerbudget"),
        ({"port": "19400"}, "port"),
        ({"racks": {"a": {"nodes": ["n"]}, "b": {"nodes": ["n"]}}}, "racks.b.nodes: n is in a as well"),
        ({"privileges": {"environments": True}}, "needs privileges.hostPID"),
        ({"privileges": {"podLogs": True}}, "needs privileges.hostPID"),
        ({"networkPolicy": {"enabled": True}}, "no effect on the network of a node"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "scraped twice"),
        ({"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}, "needs service.enabled"),
        ({"racks": {"a": {"nodes": ["n"]}}, "racksConfigMap": "x"}, "takes the place of racks"),
        ({"web": {"scheme": "https"}}, "needs web.configSecret"),
        ({"nvidia": {"libraryDirectory": "/usr/lib"}}, "needs privileges.privileged"),
        ({"prometheusRule": {"enabled": True, "disable": ["GpuHott"]}}, "no alert GpuHott"),
        ({"image": {"repository": ""}}, "image.repository: must be set, because no image is published"),
    ],
)
def test_a_mistake_is_refused_with_its_place(given: dict[str, Any], said: str) -> None:
    done = render("default", "--values", "-", given=json.dumps(given))
    assert done.returncode != 0
    assert said in done.stderr


def rules_of(values: str) -> dict[str, list[dict[str, Any]]]:
    return {each["metadata"]["name"]: each["spec"]["groups"] for each in of_kind(manifests(values), "PrometheusRule")}


def test_the_charts_rules_are_those_of_the_pack() -> None:
    pack = {path.stem: yaml.safe_load(path.read_text())["groups"] for path in (ROOT / "alerts" / "rules").glob("*.yml")}
    fleet = yaml.safe_load((ROOT / "alerts" / "server" / "fleet.rules.yml").read_text())["groups"]
    assert rules_of("everything")["gpu-agent-fleet"] == fleet
    made = {name.removeprefix("cold-coldplate-"): groups for name, groups in rules_of("tls").items()}
    del pack["advice"]  # off unless prometheusRule.advice is set
    assert made.keys() == pack.keys() | {"fleet"}
    for name, groups in pack.items():
        for rule in (each for group in groups for each in group["rules"] if "annotations" in each):
            rule["annotations"]["runbook_url"] = rule["annotations"]["runbook_url"].replace("http://", "https://")
        assert made[name] == groups, "values: tls"
    made = rules_of("inventory")
    rules = [rule for groups in made.values() for group in groups for rule in group["rules"]]
    alerts = {rule["alert"]: rule for rule in rules if "alert" in rule}
    assert "GpuLost" in alerts
    assert "GpuHot" not in alerts
    assert alerts["GpuLost"]["annotations"]["runbook_url"] == "https://docs.example/runbooks/GpuLost"
    assert "cold-coldplate-fleet" not in made


def test_the_server_and_the_agents_name_a_node_alike(tmp_path: Path) -> None:
    """Alertmanager takes two alerts for one only if all their labels agree."""
    found = manifests("everything")
    (monitor,) = of_kind(found, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    labels = {
        "__meta_kubernetes_pod_node_name": "node-9",
        "namespace": "gpus",
        "pod": "x",
        "container": "coldplate",
        "service": "x",
        "endpoint": "metrics",
        "job": "x",
        "instance": "10.0.0.9:19400",
    }
    for each in endpoint["relabelings"]:
        if each.get("action") == "labeldrop":
            labels = {name: value for name, value in labels.items() if name not in each["regex"].split("|")}
        elif "targetLabel" in each:
            value = "".join(labels.get(name, "") for name in each.get("sourceLabels", ()))
            labels[each["targetLabel"]] = each.get("replacement", "$1").replace("$1", value)
    config = load(written(found, "node-9", tmp_path))
    shown = {name: value for name, value in labels.items() if not name.startswith("__")}
    assert shown.pop("zone") == ""  # the site's own
    assert shown == {"job": SCRAPE_JOB, "instance": instance(config), "cluster": config.node.cluster}


def test_monitors_select_the_agents() -> None:
    cases = (("everything", "ServiceMonitor", "endpoints"), ("tls", "PodMonitor", "podMetricsEndpoints"))
    for values, kind, endpoints in cases:
        found = manifests(values)
        (monitor,) = of_kind(found, kind)
        (daemons,) = of_kind(found, "DaemonSet")
        (service,) = of_kind(found, "Service")
        chosen = monitor["spec"]["selector"]["matchLabels"].items()
        assert chosen <= daemons["spec"]["template"]["metadata"]["labels"].items()
        assert chosen <= service["metadata"]["labels"].items()
        assert service["spec"]["selector"].items() <= daemons["spec"]["template"]["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"][endpoints]
        assert endpoint["port"] == container(found)["ports"][0]["name"] == service["spec"]["ports"][0]["name"]
        assert endpoint["scheme"] == "https"
        assert endpoint["path"] == ("/gpu/metrics" if values == "tls" else "/metrics")


def test_dashboards_are_those_that_are_shipped() -> None:
    """Links to runbooks lead where those of the alerts do."""
    boards = {path.name: path.read_text() for path in (ROOT / "dashboards" / "generated").glob("*.json")}
    agents, over_tls, base = (
        "http://${__value.raw}/runbooks/",
        "https://${__value.raw}/runbooks/",
        "https://docs.example/runbooks/",
    )
    assert agents in boards["fleet.json"]
    for values, label, value, link in (
        ("everything", "grafana_dashboard", "1", over_tls),
        ("inventory", "my_dashboards", "", base),
    ):
        shipped = {f"coldplate-{name}": json.loads(text.replace(agents, link)) for name, text in boards.items()}
        maps = [each for each in of_kind(manifests(values), "ConfigMap") if label in each["metadata"]["labels"]]
        assert {each["metadata"]["labels"][label] for each in maps} == {value}
        assert {name: json.loads(text) for each in maps for name, text in each["data"].items()} == shipped


def sizes(found: tuple[dict[str, Any], ...]) -> Iterator[int]:
    for each in of_kind(found, "ConfigMap"):
        yield sum(len(name.encode()) + len(text.encode()) for name, text in each["data"].items())


def test_a_cluster_of_five_thousand_nodes_fits() -> None:
    """With everything on and every rack's own peers: no ConfigMap, nor what helm keeps of the release, is too large."""
    nodes = [f"gpu-node-{number:05}.cluster.site.example" for number in range(5000)]
    racks = {f"rack-{n:04}": {"nodes": nodes[n * 4 : n * 4 + 4], "power_budget": "40.8kW"} for n in range(1250)}
    done = render("everything", "--values", "-", given=json.dumps({"racks": racks}))
    found = objects(done)
    assert max(sizes(found)) < LARGEST
    chart = {str(path): base64.b64encode(path.read_bytes()).decode() for path in CHART.rglob("*") if path.is_file()}
    release = json.dumps({"chart": chart, "config": {"racks": racks}, "manifest": done.stdout}).encode()
    assert len(base64.b64encode(gzip.compress(release))) < LARGEST


def powers(found: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    spec, agent = pod(found), container(found)
    of_node = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    writable = {mount["name"] for mount in agent["volumeMounts"] if not mount.get("readOnly")} & of_node.keys()
    rights = agent["securityContext"]
    return {
        "network": spec["hostNetwork"],
        "processes": spec["hostPID"],
        "user": spec["securityContext"]["runAsUser"],
        "read": {path for name, path in of_node.items() if name not in writable},
        "written": {of_node[name] for name in writable},
        "capabilities": set(rights.get("capabilities", {}).get("add", ())),
        "all": rights.get("privileged", False),
    }


LEAST = {
    "network": False,
    "processes": False,
    "user": 65532,
    "read": set(),
    "written": set(),
    "capabilities": set(),
    "all": False,
}


@pytest.mark.parametrize(
    ("names", "added"),
    [
        ((), {}),
        (("hostNetwork",), {"network": True}),
        (("podResources",), {"user": 0, "read": {"/var/lib/kubelet/pod-resources"}}),
        (("hostPID",), {"processes": True}),
        (
            ("hostPID", "environments"),
            {"processes": True, "user": 0, "capabilities": {"SYS_PTRACE", "DAC_READ_SEARCH"}},
        ),
        (("hostPID", "podLogs"), {"processes": True, "user": 0, "read": {"/var/log/pods"}}),
        (("hostSysfs",), {"user": 0, "read": {"/sys/class", "/sys/devices", "/sys/bus"}}),
        (("privileged",), {"user": 0, "all": True}),
    ],
)
def test_a_privilege_adds_what_it_names_and_nothing_else(names: tuple[str, ...], added: dict[str, Any]) -> None:
    values = {"privileges": {"hostNetwork": False, "podResources": False, **dict.fromkeys(names, True)}}
    given = json.dumps(values)
    done = render("unprivileged", "--values", "-", "--set", "networkPolicy.enabled=false", given=given)
    assert powers(objects(done)) == {**LEAST, **added}


def test_by_default_a_pod_has_network_kubelet_and_state_once_on_a_node() -> None:
    assert powers(manifests("default")) == {
        **LEAST,
        "network": True,
        "user": 0,
        "read": {"/var/lib/kubelet/pod-resources"},
        "written": {"/var/lib/coldplate"},
    }
    (daemons,) = of_kind(manifests("default"), "DaemonSet")
    assert daemons["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0, "two would count its power twice"


def test_nothing_in_a_pod_can_gain_privileges() -> None:
    for values in ("default", "unprivileged", "slurm-beside", "infiniband"):
        found = manifests(values)
        spec = pod(found)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["securityContext"]["runAsNonRoot"] is (spec["securityContext"]["runAsUser"] != 0)
        for each in (*spec["containers"], *spec["initContainers"]):
            rights = each["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"]["drop"] == ["ALL"]
        assert not of_kind(found, "ClusterRole")
        assert not of_kind(found, "Role")
    for values in ("everything", "no-nvidia-runtime"):
        (init,) = pod(manifests(values))["initContainers"]
        assert "privileged" not in init["securityContext"]
        assert {each["name"] for each in init["volumeMounts"]} <= {"shared", "made", "racks"}


def test_probes_ask_as_the_port_answers() -> None:
    plain, tls, none = (container(manifests(each)) for each in ("default", "tls", "trial"))
    assert {name: each["httpGet"]["path"] for name, each in plain.items() if name.endswith("Probe")} == {
        "startupProbe": "/-/healthy",
        "livenessProbe": "/-/healthy",
        "readinessProbe": "/-/ready",
    }
    assert plain["readinessProbe"]["httpGet"]["scheme"] == "HTTP"
    assert plain["startupProbe"]["periodSeconds"] * plain["startupProbe"]["failureThreshold"] == 120
    assert all(set(tls[each]) >= {"tcpSocket"} for each in ("startupProbe", "livenessProbe", "readinessProbe"))
    assert not [name for name in none if name.endswith("Probe")]
    https = container(objects(render("default", "--set", "web.scheme=https,web.configSecret=x")))
    assert https["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


@pytest.mark.parametrize(
    ("values", "asked"), [("default", "all"), ("everything", "/var/run/nvidia-container-devices"), ("trial", "void")]
)
def test_the_runtime_is_asked_for_every_gpu_or_for_none(values: str, asked: str) -> None:
    """The image asks for all of them; the script that writes the configuration gets none."""
    found = manifests(values)
    (init,) = pod(found)["initContainers"]
    names = [{each["name"]: each.get("value") for each in one["env"]} for one in (container(found), init)]
    assert [each["NVIDIA_VISIBLE_DEVICES"] for each in names] == [asked, "void"]
    assert names[0]["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    volumes = {each["name"] for each in pod(found)["volumes"]}
    assert ("nvidia-all" in volumes) is (asked != "void" and asked != "all")


def test_a_driver_without_a_runtime_is_mounted_as_one_file() -> None:
    found = manifests("no-nvidia-runtime")
    (library,) = (each["hostPath"] for each in pod(found)["volumes"] if each["name"] == "nvidia-library")
    assert library == {"path": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "type": "File"}
    names = {each["name"]: each.get("value") for each in container(found)["env"]}
    assert names["LD_LIBRARY_PATH"] == "/run/nvidia-library"
    assert names["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "runtimeClassName" not in pod(found)
    assert pod(found)["nodeSelector"] == {"accelerator": "h100"}
