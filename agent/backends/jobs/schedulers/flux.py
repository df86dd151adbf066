"""Flux.

Variables: flux-environment(7). FLUX_JOB_ID_PATH names a job and the jobs in which it runs, down from the system's
instance, in the short form that starts with ƒ; FLUX_JOB_ID is the last of them. Its jobs stay in the unit of
flux.service. With `[exec] service = "sdexec"` they are units of the user manager of the user flux: a cgroup of a form
that every user can make, so that they are known only where jobs.trust_environment has flux.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler


def flux_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the job of the system's instance: jobs that it starts within itself have the same GPUs."""
    del within  # no cgroup names it
    path, last = env.get("FLUX_JOB_ID_PATH", ""), env.get("FLUX_JOB_ID", "")
    path = path.strip("/")
    job = path.partition("/")[0] or last
    if not job:
        return None
    return Job("flux", job, array=path if "/" in path else "")


SCHEDULER = Scheduler(
    "flux",
    rank=50,
    shapes=(),
    variables=frozenset({"FLUX_JOB_ID", "FLUX_JOB_ID_PATH"}),
    job=flux_job,
    daemons=re.compile(r"flux\.service"),
)
