"""Ray, whose workers know their job by RAY_JOB_ID (ray/_private/ray_constants.py). It makes no cgroups.

Every cluster numbers its jobs from 01000000, and a node may have several.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler

NIL = "ffffffff"
"""Ray's id for the absence of a job."""


def ray_job(env: Mapping[str, str], cluster: str) -> Job | None:
    """Return the Ray job that the environment names; `cluster` distinguishes it from namesakes."""
    job = env.get("RAY_JOB_ID", "")
    return Job("ray", f"{job}@{cluster}") if job and job != NIL else None


SCHEDULER = Scheduler("ray", rank=90, shapes=(), variables=frozenset({"RAY_JOB_ID"}), job=ray_job, everywhere=True)
