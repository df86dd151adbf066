"""Names of pods by their uids, from the directories that the kubelet creates for their logs.

/var/log/pods/NAMESPACE_NAME_UID is created before a pod's first container, and removed some time after the pod: a uid
is never reused, so a stale one does no harm. Neither a namespace nor a pod name may contain "_". A static pod's uid is
the MD5 of its manifest, 32 hexadecimal digits, in its cgroup and here. (kubernetes, pkg/kubelet: BuildPodLogsDirectory
in kuberuntime/helpers.go, applyDefaults in config/common.go.) Newer kubelets create the directory for root only
(setupDataDirs in kubelet.go: 0750), older ones let anyone list it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import islice

from agent.backends.jobs.job_files import REFUSED, said
from agent.backends.jobs.pods import PodDevice

PODS = "/var/log/pods"
MOST = 65_536
"""Most entries that are looked at."""
REMEDY = (
    "pods are known only by uid: tmpfiles.d/coldplate.conf lets the agent's group list the directory, "
    "coldplate-kubelet.socket lets the agent ask the kubelet"
)


Name = tuple[str, str]
"""Namespace and name of a pod."""


def parse_directory(name: str) -> tuple[str, PodDevice] | None:
    """The uid, and a pod that holds nothing; None for a name of another form."""
    namespace, _, rest = name.partition("_")
    pod, _, uid = rest.partition("_")
    if not (namespace and pod and uid) or "_" in uid:
        return None
    return uid, PodDevice(namespace, pod, "", "")


class PodLogs:
    """Lists `directory` only while a name is wanted that is not known yet."""

    def __init__(self, directory: str = PODS) -> None:
        self._directory = directory
        self._names: dict[str, PodDevice] = {}
        self.refused = ""
        """Why the directory may not be listed, and the remedy; "" if it may, or is not there."""

    def names(self, uids: Collection[str]) -> Mapping[str, PodDevice]:
        """The pods of those uids that are known. What is not asked for is forgotten."""
        self._names = {uid: pod for uid, pod in self._names.items() if uid in uids}
        if len(self._names) < len(uids):
            self._look(uids)
        return self._names

    def born(self, pods: Collection[Name]) -> Mapping[Name, float]:
        """When each of the pods was created, in seconds since the epoch, as far as its directory shows; the latest of
        several pods with one name. Empty if the directories may not be listed."""
        found: dict[Name, float] = {}
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry in islice(entries, MOST):
                parsed = parse_directory(entry.name)
                if parsed is not None and (name := (parsed[1].namespace, parsed[1].pod)) in pods:
                    found[name] = max(found.get(name, 0.0), entry.stat().st_ctime)
        return found

    def _look(self, uids: Collection[str]) -> None:
        self.refused = ""
        try:
            with os.scandir(self._directory) as entries:
                for entry in islice(entries, MOST):
                    found = parse_directory(entry.name)
                    if found is not None and found[0] in uids:
                        self._names[found[0]] = found[1]
        except OSError as error:
            if error.errno in REFUSED:
                self.refused = f"{said(self._directory, error)}; {REMEDY}"
