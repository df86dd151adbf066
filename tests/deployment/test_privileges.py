"""What the agent may do on a node: next to nothing unless a value says so, and each adds exactly what it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deployment.rendering import container, manifests, objects, of_kind, pod, render

pytestmark = pytest.mark.release
"""It needs helm."""


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
    "network": False, "processes": False, "user": 65532, "read": set(), "written": set(), "capabilities": set(),
    "all": False,
}  # fmt: skip


def with_powers(*names: str) -> dict[str, Any]:
    values = {"privileges": {"hostNetwork": False, "podResources": False, **dict.fromkeys(names, True)}}
    return powers(
        objects(
            render("unprivileged", "--values", "-", "--set", "networkPolicy.enabled=false", given=json.dumps(values))
        )
    )


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
)  # fmt: skip
def test_a_privilege_adds_what_it_names_and_nothing_else(names: tuple[str, ...], added: dict[str, Any]) -> None:
    assert with_powers(*names) == {**LEAST, **added}


def test_unless_told_otherwise_it_has_the_network_the_kubelet_and_its_state() -> None:
    assert powers(manifests("default")) == {
        **LEAST,
        "network": True,
        "user": 0,
        "read": {"/var/lib/kubelet/pod-resources"},
        "written": {"/var/lib/coldplate"},
    }


def test_nothing_in_a_pod_can_gain_more() -> None:
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


def test_an_init_container_never_sees_what_the_agent_may() -> None:
    for values in ("everything", "no-nvidia-runtime"):
        (init,) = pod(manifests(values))["initContainers"]
        assert "privileged" not in init["securityContext"]
        assert {each["name"] for each in init["volumeMounts"]} <= {"shared", "made", "racks"}


def test_one_agent_runs_on_a_node_at_a_time() -> None:
    """Two would count its power twice."""
    (daemons,) = of_kind(manifests("default"), "DaemonSet")
    assert daemons["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_probes_ask_as_the_port_answers() -> None:
    plain, tls, none = (container(manifests(each)) for each in ("default", "tls", "trial"))
    assert {name: each["httpGet"]["path"] for name, each in plain.items() if name.endswith("Probe")} == {
        "startupProbe": "/-/healthy", "livenessProbe": "/-/healthy", "readinessProbe": "/-/ready",
    }  # fmt: skip
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
