"""A job, independent of its scheduler."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

LONGEST = 200
"""Characters of a label's value: what a user wrote into a job's name must not fill the page."""

LONGEST_ID = 320
"""Characters of a job's id: the longest valid one is a pod's namespace (63) and name (253)."""

Key = tuple[str, str]
"""Scheduler and id: two jobs with the same key are one."""


@dataclass(frozen=True, slots=True)
class Job:
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


_TEXTS = tuple(field.name for field in fields(Job) if field.type == "str" and field.name not in ("scheduler", "id"))


def merged(job: Job, other: Job) -> Job:
    """The job, completed with what only the other knows, and with the earlier of their starts."""
    changes: dict[str, str | float] = {
        name: getattr(other, name) for name in _TEXTS if not getattr(job, name) and getattr(other, name)
    }
    if other.started is not None and (job.started is None or other.started < job.started):
        changes["started"] = other.started
    return replace(job, **changes) if changes else job  # type: ignore[arg-type]  # the names are the fields' own


def legible(text: str) -> str:
    """A text of unknown origin as the value of a label: bounded, and without control characters."""
    text = text[:LONGEST]
    return text if text.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in text)


_ID = re.compile(r"[\w.@+:/\\\[\]{}(),=~#%^-]+")


def foul(text: str) -> bool:
    """Whether a text cannot be the id of a job: too long, empty, or with characters that no scheduler uses.

    If it were shown, a text that any user may have chosen would become a label.
    """
    return len(text) > LONGEST_ID or not _ID.fullmatch(text)
