"""Whose a process is, by the shape of its cgroup path. Pure: text in, `Place` out, and no text makes it raise.

The shapes of schedulers are in their files; here are those of container engines and of systemd. A shape that is not
known is a login session, and said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.backends.jobs.scheduler import Scheduler
from agent.backends.jobs.schedulers import SCHEDULERS

MAX_LINES = 64
MAX_PATH = 4096

_HEX = r"[0-9a-f]{64}"

CONTAINERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("docker", re.compile(rf"/docker[-/](?P<id>{_HEX})(?:\.scope)?(?:/|$)")),
    ("podman", re.compile(rf"/libpod-(?P<id>{_HEX})(?:\.scope)?(?:/|$)")),
    ("containerd", re.compile(rf"/(?:nerdctl|cri-containerd)-(?P<id>{_HEX})\.scope(?:/|$)")),
    ("container", re.compile(rf"[/-](?P<id>{_HEX})(?:\.scope)?(?:/|$)")),
    ("lxc", re.compile(r"/lxc(?:\.payload)?[./](?P<id>[^/]+)")),
)
"""Engine and pattern, the more telling ones first. A pod holds containers, so schedulers' shapes go before them."""

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
    """What a cgroup says: a scheduler, engine or `systemd`, and the id of its job; `session` without one where it says
    nothing.

    `uid` is the owner that a scheduler writes into its path, `contained` says that its users are its own, `strange` is
    a path whose shape is not known.
    """

    scheduler: str
    id: str = ""
    uid: int | None = None
    contained: bool = False
    strange: str = ""


def paths(text: str) -> tuple[str, ...]:
    """The different paths of a /proc/PID/cgroup, in its order."""
    found = (line.split(":", 2) for line in text.split("\n", MAX_LINES)[:MAX_LINES])
    return tuple(dict.fromkeys(fields[2][:MAX_PATH] for fields in found if len(fields) == 3))


def place(text: str, schedulers: Sequence[Scheduler] = SCHEDULERS) -> Place:
    """What the text of /proc/PID/cgroup says, by the shapes of these schedulers, in the order of belief."""
    known = paths(text)
    for scheduler in schedulers:
        match = _first(scheduler.shapes, known)
        if match:
            return Place(scheduler.name, scheduler.job_id(match), _uid(match), scheduler.contained)
    for engine, pattern in CONTAINERS:
        match = _first((pattern,), known)
        if match:
            return Place(engine, match["id"][:SHORT_ID] if engine in ENGINES else match["id"], contained=True)
    for path in known:
        unit = _unit(path)
        if unit:
            return Place("systemd", unit)
    strange = next((path for path in known if not _plain(path)), "" if known else text[:MAX_PATH] or "(empty)")
    return Place("session", strange=strange)


def _first(patterns: Sequence[re.Pattern[str]], known: Sequence[str]) -> re.Match[str] | None:
    return next((match for pattern in patterns for path in known if (match := pattern.search(path))), None)


def _uid(match: re.Match[str]) -> int | None:
    uid = match.groupdict().get("uid")
    return int(uid) if uid and len(uid) < 12 else None


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
