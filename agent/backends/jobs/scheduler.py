"""A scheduler, for job attribution: how its jobs are recognised, and which facts they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.backends.jobs.job import Job


def _named(match: re.Match[str]) -> str:
    return match["id"]


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One scheduler, or one batch system.

    `rank` is its place in the order of trust: where a process fits two schedulers, the lower rank wins. `shapes` are
    patterns of the cgroup paths of its jobs; their group `id` names the job (through `job_id`), `uid` the number of its
    user where the path holds one. They count only where no user could have made the cgroup: see cgroup.py.

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
    job_id: Callable[[re.Match[str]], str] = _named
    contained: bool = False
    """Whether its jobs are containers, whose users are their own."""
    everywhere: bool = False
    """Whether users run it themselves: `job` is then passed what distinguishes its clusters."""
