"""The owner of a process, by the form of its cgroup path. Pure: text in, `CgroupOwner` out, and no text makes it raise.

The forms of schedulers are in their files; here are those of container engines and of systemd. A path of unknown form
is a login session, and is logged.

A cgroup shows the owner of a process because only root moves processes. But systemd gives every user a part of the tree
in which they can create cgroups of any name (user@.service has Delegate=; pam_cgfs(8) does the same for version 1), and
services may get one as well. So a scheduler's form counts only if all its ancestors are slices that belong to no user,
pods and containers. A container's form also counts elsewhere, where engines run that are not root's; but the id
includes the owner of that part of the tree, so that a user's container is never mistaken for another's.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from agent.backends.jobs.job import Scheduler
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
"""Engine and pattern, the more specific ones first. A pod holds containers, so schedulers' shapes come before these."""

_OF_USERS = re.compile(
    r"/user\.slice(?:/|$)|/user-[0-9]+\.slice(?:/|$)|/user@[0-9]+\.service(?:/|$)|^/user/[^/]+(?:/|$)"
)
_NUMBERED = re.compile(r"/user[-@]([0-9]{1,11})\.(?:slice|service)(?:/|$)")
_NAMED_UNIT = re.compile(r".+\.(?:service|scope)")
"""Units, whose part of the tree Delegate= may give to a user."""
_ABOVE = re.compile(
    rf"\.\.|[^/]+\.slice|(?:[^/]*[-:])?{_HEX}(?:\.scope)?|docker|kubelet|kubepods|burstable|besteffort"
    r"|pod[0-9a-f-]{32,36}|snap\.microk8s\.daemon-[a-z0-9-]+\.service"
    r"|(?:containerd|docker|cri-docker|crio|kubelet|k3s|k3s-agent|k0sworker|k0scontroller|rke2-server|rke2-agent)\.service"
)
"""What may be above a scheduler's cgroup: nothing that anyone but root can create."""

ENGINES = frozenset({"docker", "podman", "containerd", "container"})
SHORT_ID = 12
"""Characters of a container's id that `docker ps` shows."""

HOSTS = frozenset(
    ("slurmd", "containerd", "docker", "crio", "kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "ssh",
     "sshd", "cron", "crond", "atd", "pbs", "pbs_jobs", "pbspro", "condor", "lsfd", "sge_execd", "sgeexecd", "flux",
     "nomad", "oar-node", "ray")
)  # fmt: skip
"""Units that run other people's work: the unit is not the job."""
_UNIT = re.compile(r"(?P<name>[^/]+)\.service")
_SERVICE = re.compile(
    r"(?:/[^/]+\.slice)*/(?:[^/]*[-_.@])?(?:mps|dcgm|nv-hostengine|nvidia-persistenced)(?:[-_.@][^/]*)?\.service(?:/|$)"
)
"""Units that serve a GPU's users: with this word in their name, and made by root."""
_TRANSIENT = re.compile(r"run-[^/]+\.scope")
_USER = re.compile(r"user@([0-9]+)\.service")
_LOGIN = re.compile(r"/(?:user\.slice|init\.scope|system\.slice|machine\.slice)(?:/|$)|/session-[^/]*\.scope(?:/|$)")


class CgroupOwner(Struct, frozen=True):
    """What a cgroup says: a scheduler, engine or `systemd`, and the id of its job; `session` without an id if it names
    none.

    `uid` is the owner that a scheduler or systemd writes into the path, `contained` says that it has user numbers of
    its own, `home` is the scheduler below whose daemons the process runs, `service` says that its unit serves the users
    of GPUs, `strange` is a path of unknown shape, or that names its job in an unknown way, `top` the cgroup that holds
    all of a scheduler's job.
    """

    scheduler: str
    id: str = ""
    uid: int | None = None
    contained: bool = False
    home: str = ""
    service: bool = False
    strange: str = ""
    top: str = ""


def paths(text: str) -> tuple[str, ...]:
    """Return the distinct paths in a /proc/PID/cgroup, in its order."""
    lines = (line.split(":", 2) for line in text.split("\n", MAX_LINES)[:MAX_LINES])
    return tuple(dict.fromkeys(fields[2][:MAX_PATH] for fields in lines if len(fields) == 3))


def parse_cgroup(text: str, schedulers: Sequence[Scheduler] = SCHEDULERS) -> CgroupOwner:
    """Return what the text of /proc/PID/cgroup says, by the shapes of these schedulers, the most trusted first."""
    cgroup_paths = paths(text)
    for scheduler in schedulers:
        match = _first(scheduler.shapes, cgroup_paths)
        if match and _roots_own(match):
            top = match.string[: match.end()].rstrip("/:")
            strange = match.string if match.groupdict().get("unknown") else ""
            job = scheduler.job_id(match)
            return CgroupOwner(scheduler.name, job, _uid(match), scheduler.contained, strange=strange, top=top)
    home = _home(cgroup_paths, schedulers)
    container = _container(cgroup_paths, home)
    if container is not None:
        return container
    for path in cgroup_paths:
        unit = _unit(path)
        if unit and not home:
            return CgroupOwner("systemd", unit, service=bool(_SERVICE.match(path) and not _OF_USERS.search(path)))
    strange = next(
        (path for path in cgroup_paths if not _plain(path)), "" if cgroup_paths else text[:MAX_PATH] or "(empty)"
    )
    return CgroupOwner("session", home=home, strange="" if home else strange)


def _first(
    patterns: Sequence[re.Pattern[str]], cgroup_paths: Sequence[str], of_users: bool = False
) -> re.Match[str] | None:
    """Return the first match among the paths outside users' parts of the tree, or, with `of_users`, inside them."""
    candidates = [path for path in cgroup_paths if bool(_OF_USERS.search(path)) is of_users]
    return next((match for pattern in patterns for path in candidates if (match := pattern.search(path))), None)


def _container(cgroup_paths: Sequence[str], home: str) -> CgroupOwner | None:
    """Return the container that a path names; below a user's part of the tree, or a unit, it is that one's."""
    for of_users in (False, True):
        for engine, pattern in CONTAINERS:
            match = _first((pattern,), cgroup_paths, of_users)
            if match is None:
                continue
            job = match["id"][:SHORT_ID] if engine in ENGINES else match["id"]
            above = match.string[: match.start()]
            if of_users:
                owner = _NUMBERED.search(above)
                uid = int(owner[1]) if owner else None
                return CgroupOwner(engine, job, uid=uid, home=home)
            unit = next(
                (part for part in above.split("/") if _NAMED_UNIT.fullmatch(part) and not _ABOVE.fullmatch(part)), ""
            )
            return CgroupOwner(engine, f"{job}@{unit}" if unit else job, contained=True, home=home)
    return None


def _roots_own(match: re.Match[str]) -> bool:
    """Return whether only root could have created the matching cgroup."""
    return all(_ABOVE.fullmatch(part) for part in match.string[: match.start()].split("/")[1:])


def may_hold_schedulers(path: str) -> bool:
    """Return whether a scheduler's cgroups may be below this one, by its last part: those above it have been seen."""
    return bool(_ABOVE.fullmatch(path.rpartition("/")[2])) and not _OF_USERS.search(path)


def _home(cgroup_paths: Sequence[str], schedulers: Sequence[Scheduler]) -> str:
    """Return the scheduler whose daemons started the process: what they start stays below their unit."""
    if any(_OF_USERS.search(path) for path in cgroup_paths):
        return ""
    for scheduler in schedulers:
        for path in cgroup_paths:
            for part in path.split("/")[1:]:
                if scheduler.daemons is not None and scheduler.daemons.fullmatch(part):
                    return scheduler.name
                if not _ABOVE.fullmatch(part):
                    break
    return ""


def _uid(match: re.Match[str]) -> int | None:
    uid = match.groupdict().get("uid")
    return int(uid) if uid and len(uid) < 12 else None


def _unit(path: str) -> str:
    """Return the innermost unit or transient scope that was started for this work; "" if the path has no such unit."""
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
    """Return whether a path is one of those in which a process of a login session may be."""
    if path in ("", "/") or _LOGIN.search(path) or ".service/" in f"{path}/":
        return True
    return any(scheduler.nameless.search(path) for scheduler in SCHEDULERS if scheduler.nameless is not None)
