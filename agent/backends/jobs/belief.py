"""Which information is trusted: the cgroup, kept by the kernel, before the environment, written by users. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agent.backends.jobs.cgroup import CgroupOwner
from agent.backends.jobs.job import Job, legible, merged
from agent.backends.jobs.scheduler import Scheduler
from agent.broker.questions import job_variables


class Belief:
    """What these schedulers say about a process, the most trusted first."""

    def __init__(self, schedulers: Sequence[Scheduler], trusted: Collection[str] = ()) -> None:
        """`trusted` are schedulers whose variables count wherever a process is."""
        self._schedulers = schedulers
        self._trusted = trusted
        self._by_name = {scheduler.name: scheduler for scheduler in schedulers}
        self._keys = frozenset(name.encode("ascii") for each in schedulers for name in each.variables)

    def known(self, environ: bytes) -> dict[str, str]:
        """The schedulers' variables in a /proc/PID/environ, as the values of labels."""
        found = job_variables(environ, self._keys).items()
        return {key.decode("ascii"): legible(value.decode("utf-8", "replace")) for key, value in found}

    def named(self, where: CgroupOwner) -> Job | None:
        """The job that the cgroup names by itself; None if it is not a scheduler's."""
        return Job(where.scheduler, where.id) if where.scheduler in self._by_name else None

    def job(self, where: CgroupOwner, env: Mapping[str, str], own: str) -> Job | None:
        """The job of a process in this cgroup; None if no scheduler claims it.

        A job named by the cgroup takes facts only from an environment that names the same job. A job named only by the
        environment is believed below the scheduler's own daemons. `own` distinguishes a cluster that a user runs there
        from others.
        """
        job = self.named(where)
        if job is not None:
            told = self._by_name[where.scheduler].job(env, where.id)
            return job if told is None else merged(replace(job, id=told.id), told)
        for each in self._schedulers:
            if each.everywhere or each.name == where.home or each.name in self._trusted:
                told = each.job(env, own if each.everywhere else "")
                if told is not None:
                    return told
        return None
