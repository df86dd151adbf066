"""Whose a process is, by the shape of its cgroup path. Pure: text in, `Place` out, and no text makes it raise.

The shapes are those of Slurm (cgroup v1: docs/cgroups; v2: slurm.schedmd.com/cgroup_v2.html, where the scope
has the node's name before it if several slurmd share a machine), of the kubelet with its two cgroup drivers,
of PBS's cgroup hook (whose configuration names the service), and of the container engines. A shape that is not
known is a login session, and said.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_LINES = 64
MAX_PATH = 4096

_HEX = r"[0-9a-f]{64}"
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"

SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("slurm", re.compile(r"/(?:[^/]*_)?slurmstepd\.scope/job_(?P<id>[0-9]+)(?:/|$)")),
    ("slurm", re.compile(r"/slurm(?:_[^/]*)?/uid_(?P<uid>[0-9]+)/job_(?P<id>[0-9]+)(?:/|$)")),
    ("pbs", re.compile(r"/(?:[^/]+\.service|pbs_jobs|pbspro)/jobid/(?P<id>[^/]+)")),
    ("kubernetes", re.compile(rf"[/-]pod(?P<id>{_UID})(?:\.slice)?(?:[/:]|$)")),
    ("docker", re.compile(rf"/docker[-/](?P<id>{_HEX})(?:\.scope)?(?:/|$)")),
    ("podman", re.compile(rf"/libpod-(?P<id>{_HEX})(?:\.scope)?(?:/|$)")),
    ("containerd", re.compile(rf"/(?:nerdctl|cri-containerd)-(?P<id>{_HEX})\.scope(?:/|$)")),
    ("container", re.compile(rf"[/-](?P<id>{_HEX})(?:\.scope)?(?:/|$)")),
    ("lxc", re.compile(r"/lxc(?:\.payload)?[./](?P<id>[^/]+)")),
)
"""Scheduler and pattern, the more telling ones first: Slurm may run inside a pod, and a pod holds containers."""

ENGINES = frozenset({"docker", "podman", "containerd", "container"})
SHORT_ID = 12
"""Characters of a container's id that `docker ps` shows."""

HOSTS = frozenset(
    ("slurmd", "containerd", "docker", "crio", "kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "ssh",
     "sshd", "cron", "crond", "atd", "pbs", "pbs_jobs", "pbspro", "condor", "lsfd", "sge_execd", "ray")
)  # fmt: skip
"""Units that run other people's work: the unit is not the job."""
_UNIT = re.compile(r"(?P<name>[^/]+)\.service")
_TRANSIENT = re.compile(r"run-[^/]+\.scope")
_USER = re.compile(r"user@([0-9]+)\.service")
_LOGIN = re.compile(r"/(?:user\.slice|init\.scope|system\.slice|machine\.slice)(?:/|$)|/session-[^/]*\.scope(?:/|$)")


@dataclass(frozen=True, slots=True)
class Place:
    """What a cgroup says: a scheduler and the id of its job; `session` without an id where it says nothing.

    `uid` is the owner that Slurm writes into its path, `strange` a path whose shape is not known.
    """

    scheduler: str
    id: str = ""
    uid: int | None = None
    strange: str = ""


def paths(text: str) -> tuple[str, ...]:
    """The different paths of a /proc/PID/cgroup, in its order."""
    found = (line.split(":", 2) for line in text.split("\n", MAX_LINES)[:MAX_LINES])
    return tuple(dict.fromkeys(fields[2][:MAX_PATH] for fields in found if len(fields) == 3))


def place(text: str, ignored: Collection[str] = ()) -> Place:
    """What the text of /proc/PID/cgroup says, without the shapes of the `ignored` schedulers."""
    known = paths(text)
    for scheduler, pattern in SHAPES:
        if scheduler in ignored:
            continue
        for path in known:
            match = pattern.search(path)
            if match:
                return _matched(scheduler, match)
    for path in known:
        unit = _unit(path)
        if unit and "systemd" not in ignored:
            return Place("systemd", unit)
    strange = next((path for path in known if not _plain(path)), "" if known else text[:MAX_PATH] or "(empty)")
    return Place("session", strange=strange)


def _matched(scheduler: str, match: re.Match[str]) -> Place:
    job = match["id"]
    if scheduler == "kubernetes":
        job = job.replace("_", "-")  # systemd's cgroup driver writes the pod's uid so
    elif scheduler in ENGINES:
        job = job[:SHORT_ID]
    uid = match.groupdict().get("uid")
    return Place(scheduler, job, int(uid) if uid and len(uid) < 12 else None)


def _unit(path: str) -> str:
    """The innermost unit or transient scope that somebody started for this work; "" if there is none."""
    owner = _USER.search(path)
    for part in reversed(path.split("/")):
        if _TRANSIENT.fullmatch(part):
            break
        unit = _UNIT.fullmatch(part)
        if unit:
            if _USER.fullmatch(part) or unit["name"].split("@")[0] in HOSTS:
                return ""
            break
    else:
        return ""
    return f"user-{owner[1]}/{part}" if owner else part


def _plain(path: str) -> bool:
    """Whether a path is one of those in which a process of a login session may be."""
    return path in ("", "/") or bool(_LOGIN.search(path)) or bool(_unit_host(path))


def _unit_host(path: str) -> bool:
    return any(part.endswith(".service") for part in path.split("/"))
