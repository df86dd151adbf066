"""Pods: their names from the kubelet's directories, and the kubelet itself through the socket that is handed on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from inside.broker import running
from inside.checks import NotHereError, check
from inside.people import Process, cgroup, user
from inside.tools import CheckError, active, command, missing, one, series, sh, show, total, until

UID = "0aaf1f3d-1111-2222-3333-444455556666"
STATIC = "712b37831be464ccc2fb1553ef89aa91"
LOGS = Path("/var/log/pods")
KUBELET = Path("/var/lib/kubelet/pod-resources")
SERVER = Path(__file__).with_name("serve_pods.py")


def pod_process(uid: str) -> Process:
    user("alice")
    return Process("alice", cgroup(f"kubepods/burstable/pod{uid}/{'3f' * 32}"), {"HOSTNAME": "x"})


@check("pod names")
def pods_have_names() -> str:
    pod, static = pod_process(UID), pod_process(STATIC)
    command(f"process 2 {running[4711].pid}", f"process 5 {pod.pid}", f"process 6 {static.pid}")
    until(
        "the pods, by uid",
        lambda: len([1 for own, _ in series("coldplate_job_info") if own["job_id"] in (UID, STATIC)]) == 2,
        30,
    )
    LOGS.mkdir(mode=0o750, parents=True)  # as a kubelet makes it
    os.chmod(LOGS, 0o750)
    for name in (
        f"ml_serve-0_{UID}",
        f"kube-system_proxy-node1_{STATIC}",
        "ml_gone-0_9aaf1f3d-1111-2222-3333-444455556666",
    ):
        (LOGS / name).mkdir(mode=0o755)
    until("the gap", lambda: missing().get("coldplate_job_info") == "denied", 30)
    sh("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/coldplate.conf")
    took = until(
        "the names",
        lambda: (
            one("coldplate_job_info", job_id="ml/serve-0")
            and one("coldplate_job_info", job_id="kube-system/proxy-node1")
        ),
        30,
    )
    reach = sh(
        "setpriv",
        "--reuid=coldplate",
        "--regid=coldplate",
        "--clear-groups",
        "ls",
        f"{LOGS}/ml_serve-0_{UID}",
        check=False,
    )
    if "Permission denied" not in reach:
        raise CheckError(f"the agent's user reaches into the directories: {reach}")
    if "coldplate_job_info" in missing():
        raise CheckError("named, and yet said to be missing")
    return f"denied in a directory of mode 0750, and said so; named {took:.1f} s after tmpfiles.d let it list, no more"


@check("kubelet")
def pods_without_a_process_are_seen() -> str:
    if sh("/opt/coldplate/bin/python", "-c", "import grpc", check=False):
        raise NotHereError("grpcio could not be installed")
    KUBELET.mkdir(parents=True)
    os.chmod(KUBELET.parent, 0o750)
    uuid = one("coldplate_gpu_info", gpu="7")["uuid"]
    kubelet = subprocess.Popen(["/opt/coldplate/bin/python", str(SERVER), f"{KUBELET}/kubelet.sock", uuid])
    try:
        until("the gap", lambda: missing().get("coldplate_job_info") == "denied", 30)
        sh("systemctl", "start", "coldplate-kubelet.socket")
        took = until("the pod", lambda: one("coldplate_gpu_job_info", gpu="7", pod="idle-0", namespace="ml"), 30)
        if total("coldplate_job_processes", job_id="ml/idle-0") != 0 or active("coldplate-kubelet.service") != "active":
            raise CheckError(f"{series('coldplate_job_processes')}, {active('coldplate-kubelet.service')}")
        code = "import socket; socket.socket(socket.AF_UNIX).connect('/run/coldplate-kubelet.sock')"
        if "PermissionError" not in sh(
            "setpriv", "--reuid=alice", "--clear-groups", "python3", "-c", code, check=False
        ):
            raise CheckError("alice may ask the kubelet")
        memory = int(show("MemoryCurrent", "coldplate-kubelet.service")) / 2**20
        return f"a pod that holds a GPU without a process is seen {took:.1f} s after the socket was ({memory:.1f} MiB)"
    finally:
        kubelet.kill()
        kubelet.wait()
