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

    `rank` is its place in the order of belief: where a process looks like two, the lower one has it. `shapes` are
    patterns of the cgroup paths of its jobs; their group `id` names the job (through `job_id`), `uid` the number of its
    user where the path holds one. They count only where no user could have made the cgroup: see cgroup.py.

    `variables` are those that its processes find in their environment, as far as they say something about the job. A
    user may set them as he likes, so they count within a cgroup of its shapes, and below one whose name `daemons`
    matches: what its daemons start stays in their unit, where the scheduler makes no cgroups.

    `job` makes a job of such variables. Its second argument is the job that the cgroup names, "" where it names none;
    it gives None where the variables say nothing, or speak of another job.
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
    """Whether it is run by users, in places of theirs: `job` is then told what else tells its clusters apart."""
