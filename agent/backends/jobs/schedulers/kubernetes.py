"""Kubernetes: the pod's cgroup, as the kubelet makes it with its two cgroup drivers.

pkg/kubelet/cm: pod_container_manager_linux.go and cgroup_manager_linux.go. A cgroup has only the pod's uid;
its name comes from the directories of its logs or from the kubelet.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"


def _uid(match: re.Match[str]) -> str:
    return match["id"].replace("_", "-")  # systemd's cgroup driver writes it so


def pod_of(env: Mapping[str, str], within: str) -> Job | None:
    """Return the pod that the cgroup names, and its Ray cluster, if any: KubeRay writes the cluster's name into its
    pods.

    (utils.RAY_CLUSTER_NAME of ray-project/kuberay.) Labels of pods, and with them the queues of Kueue, are known only
    to the API server, which is not asked.
    """
    return Job("kubernetes", within, partition=env.get("RAY_CLUSTER_NAME", "")) if within else None


SCHEDULER = Scheduler(
    "kubernetes",
    rank=70,
    shapes=(re.compile(rf"/(?:[^/]*-)?pod(?P<id>{_UID})(?:\.slice)?(?:[/:]|$)"),),
    variables=frozenset({"HOSTNAME", "RAY_CLUSTER_NAME"}),
    job=pod_of,
    job_id=_uid,
    contained=True,
)
