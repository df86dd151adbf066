"""A job, independent of its scheduler, and what a scheduler's file gives: how jobs are recognised, and their facts."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

LONGEST = 200
"""Characters of a label's value: what a user wrote into a job's name must not fill the page."""

LONGEST_ID = 320
"""Characters of a job's id: the longest valid one is a pod's namespace (63) and name (253)."""

Key = tuple[str, str]
"""Scheduler and id: two jobs with the same key are one."""


class Job(Struct, frozen=True):
    """One job. An empty text is an unknown fact; `started` is in seconds since the epoch.

    `plain` says that it has no scheduler: a container, a unit or a login session is shown as a job.
    """

    scheduler: str
    id: str
    user: str = ""
    name: str = ""
    account: str = ""
    partition: str = ""
    array: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    started: float | None = None
    plain: bool = False

    @property
    def key(self) -> Key:
        return self.scheduler, self.id


_TEXTS = tuple(field.name for field in fields(Job) if field.type is str and field.name not in ("scheduler", "id"))


def merge_jobs(job: Job, other: Job) -> Job:
    """Return the job, completed with what only the other knows, and with the earlier of their starts."""
    changes: dict[str, str | float] = {
        name: getattr(other, name) for name in _TEXTS if not getattr(job, name) and getattr(other, name)
    }
    if other.started is not None and (job.started is None or other.started < job.started):
        changes["started"] = other.started
    return replace(job, **changes) if changes else job  # the names are the fields' own


def to_label_value(text: str) -> str:
    """Return a text of unknown origin as the value of a label: bounded, and without control characters."""
    text = text[:LONGEST]
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


_ID = re.compile(r"[\w.@+:/\\\[\]{}(),=~#%^-]+")


def is_invalid_job_id(text: str) -> bool:
    """Return whether a text cannot be the id of a job: too long, empty, or with characters that no scheduler uses.

    If it were shown, a text that any user may have chosen would become a label.
    """
    return len(text) > LONGEST_ID or not _ID.fullmatch(text)


Facts = Mapping[str, str]
"""Which of an environment's variables has which fact of a job, by the fact's name in `Job`."""


def job_with(scheduler: str, id: str, env: Mapping[str, str], facts: Facts, **more: Any) -> Job:
    """Return a job with these facts of the environment, and more."""
    values: dict[str, Any] = {name: env.get(variable, "") for name, variable in facts.items()}
    return Job(scheduler, id, **values, **more)


def _named(match: re.Match[str]) -> str:
    return match["id"]


class Scheduler(Struct, frozen=True):
    """One scheduler, or one batch system.

    `rank` is its place in the order of trust: where a process fits two schedulers, the lower rank wins. `shapes` are
    patterns of the cgroup paths of its jobs; their group `id` names the job (through `job_id`), `uid` the number of its
    user where the path holds one, `unknown` a name of a form that is not known, in a place where only jobs are. They
    count only where no user could have made the cgroup: see cgroup.py.

    `variables` are those in its processes' environment that say something about the job. Users may set them as they
    like, so they count only within a cgroup of its shapes, and below one whose name `daemons` matches: what its daemons
    start stays in their unit, where the scheduler makes no cgroups.

    `job` makes a job of such variables. Its second argument is the job that the cgroup names, "" if it names none; it
    returns None if the variables say nothing, or name another job.
    """

    name: str
    rank: int
    shapes: tuple[re.Pattern[str], ...]
    variables: frozenset[str]
    job: Callable[[Mapping[str, str], str], Job | None]
    daemons: re.Pattern[str] | None = None
    nameless: re.Pattern[str] | None = None
    """Cgroup paths that it makes for several jobs together, or that users can make as well: they name no job."""
    job_id: Callable[[re.Match[str]], str] = _named
    contained: bool = False
    """Whether its jobs are containers, whose users are their own."""
    everywhere: bool = False
    """Whether users run it themselves: `job` is then passed what distinguishes its clusters."""
