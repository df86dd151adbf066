"""Ray: its workers have their job's id in RAY_JOB_ID (ray/_private/ray_constants.py).

Every Ray cluster numbers its jobs from 01000000, and a node may run workers of several clusters. With its resource
isolation, all workers of a node are in ray-node_ID/user/workers, wherever its user says
(src/ray/common/cgroup2/cgroup_manager.cc).
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler

NIL = "ffffffff"
"""The id of a Ray process that belongs to no job."""


def ray_job(env: Mapping[str, str], cluster: str) -> Job | None:
    """Return the Ray job that the environment names, as ID@CLUSTER; None if it names none."""
    job = env.get("RAY_JOB_ID", "")
    return Job("ray", f"{job}@{cluster}") if job and job != NIL else None


SCHEDULER = Scheduler(
    "ray",
    rank=90,
    shapes=(),
    variables=frozenset({"RAY_JOB_ID"}),
    job=ray_job,
    nameless=re.compile(r"/ray-node_[0-9a-f]+/(?:system|user)(?:/|$)"),
    everywhere=True,
)
