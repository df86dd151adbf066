"""PBS Professional and OpenPBS.

Cgroups: those of its cgroup hook (pbs_cgroups.PY), whose configuration names the service or folder. Variables: PBS
User's Guide, "environment variables provided by PBS".
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler, job_with

_FACTS = {"name": "PBS_JOBNAME", "partition": "PBS_QUEUE"}


def pbs_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the PBS job that the environment names."""
    job = env.get("PBS_JOBID")
    if not job or within not in ("", job):
        return None
    return job_with("pbs", job, env, _FACTS)


SCHEDULER = Scheduler(
    "pbs",
    rank=20,
    shapes=(re.compile(r"(?:^/[^/]+\.service|/pbs[^/]*)/jobid/(?P<id>[^/]+)"),),
    variables=frozenset({"PBS_JOBID", *_FACTS.values()}),
    job=pbs_job,
    daemons=re.compile(r"pbs(?:_mom|pro)?\.service"),
)
