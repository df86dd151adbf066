"""The sources of jobs by name: every scheduler, and what shows jobs of none."""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.jobs.schedulers import SCHEDULERS

SOURCES = (*(scheduler.name for scheduler in SCHEDULERS), "cgroup", "mapping")
"""`cgroup` stands for processes without a scheduler: containers, systemd units, login sessions."""
ALL = "all"


def refuse_unknown(sources: Sequence[str], trust_environment: Sequence[str]) -> None:
    """Reject unknown names. Raises ValueError."""
    for source in sources:
        if source not in (ALL, *SOURCES):
            raise ValueError(f"sources: {source!r} is unknown; use any of {', '.join((ALL, *SOURCES))}")
    names = tuple(scheduler.name for scheduler in SCHEDULERS)
    for name in trust_environment:
        if name not in names:
            raise ValueError(f"trust_environment: {name!r} is unknown; use any of {', '.join(names)}")


def is_wanted(source: str, sources: Sequence[str]) -> bool:
    """Whether this source is asked if `sources` are configured."""
    return ALL in sources or source in sources
