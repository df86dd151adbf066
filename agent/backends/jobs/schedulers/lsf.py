"""IBM Spectrum LSF.

Cgroups, with LSF_PROCESS_TRACKING or LSB_RESOURCE_ENFORCE: /lsf/CLUSTER/job.ID.PID.TIME (IBM's support pages on LSF and
cgroups; CEEMS tests its collector on the same). The elements of an array share that ID. Variables: IBM's reference,
"environment variables set for job execution".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job
from agent.backends.jobs.scheduler import Scheduler


def lsf_job(env: Mapping[str, str], within: str) -> Job | None:
    """The LSF job that the environment names; the elements of an array share its LSB_JOBID."""
    job, index = env.get("LSB_JOBID"), env.get("LSB_JOBINDEX", "0")
    if not job or within not in ("", job):
        return None
    return Job(
        "lsf",
        job if index == "0" else f"{job}[{index}]",
        name=env.get("LSB_JOBNAME", ""),
        account=env.get("LSB_PROJECT_NAME", ""),
        partition=env.get("LSB_QUEUE", ""),
    )


SCHEDULER = Scheduler(
    "lsf",
    rank=30,
    shapes=(re.compile(r"/lsf/[^/]+/job\.(?P<id>[0-9]+)\.[0-9.]+(?:/|$)"),),
    variables=frozenset({"LSB_JOBID", "LSB_JOBINDEX", "LSB_JOBNAME", "LSB_QUEUE", "LSB_PROJECT_NAME"}),
    job=lsf_job,
    daemons=re.compile(r"lsfd\.service"),
)
