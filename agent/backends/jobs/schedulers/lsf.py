"""IBM Spectrum LSF.

Cgroups, with LSF_PROCESS_TRACKING or LSB_RESOURCE_ENFORCE: /lsf/CLUSTER/job.ID.PID.TIME (IBM's support pages on LSF and
cgroups; CEEMS tests its collector on the same). The elements of an array share that ID, unless it has an index in
brackets. Variables: IBM's reference,
"environment variables set for job execution".
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler, job_with

_FACTS = {"name": "LSB_JOBNAME", "account": "LSB_PROJECT_NAME", "partition": "LSB_QUEUE"}


def lsf_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the LSF job that the environment names; the elements of an array share its LSB_JOBID.

    The element's index counts only if the cgroup does not contain it, and only if it is a number.
    """
    job, index = env.get("LSB_JOBID", ""), env.get("LSB_JOBINDEX", "0")
    numbered = index.isascii() and index.isdigit() and index.strip("0")
    named = f"{job}[{index}]" if numbered else job
    if not (job.isascii() and job.isdigit()) or within not in ("", job, named):
        return None
    return job_with("lsf", named, env, _FACTS)


SCHEDULER = Scheduler(
    "lsf",
    rank=30,
    shapes=(re.compile(r"/lsf/[^/]+/job\.(?P<id>[0-9]+(?:\[[0-9]+\])?)\.[0-9.]+(?:/|$)"),),
    variables=frozenset({"LSB_JOBID", "LSB_JOBINDEX", *_FACTS.values()}),
    job=lsf_job,
    daemons=re.compile(r"lsfd\.service"),
)
