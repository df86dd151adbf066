"""OAR 2 and 3.

Cgroups: /oar/USER_JOB of version 1 (sources/core/tools/job_resource_manager_cgroups.pl of oar-team/oar) and
/oar.slice/oar-uUSER.slice/oar-uUSER-jJOB.slice of OAR 3, as Alumet's collector knows them, too. Variables: oarsub(1).
OAR starts its jobs through its own sshd, so that without cgroups they look like logins.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler, job_with

_FACTS = {"user": "OAR_USER", "name": "OAR_JOB_NAME", "account": "OAR_PROJECT_NAME"}


def oar_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the OAR job that the environment names."""
    job = env.get("OAR_JOB_ID") or env.get("OAR_JOBID") or ""
    if not job or within not in ("", job):
        return None
    array, index = env.get("OAR_ARRAY_ID"), env.get("OAR_ARRAY_INDEX")
    return job_with("oar", job, env, _FACTS, array=f"{array}[{index}]" if array and index else "")


SCHEDULER = Scheduler(
    "oar",
    rank=45,
    shapes=(
        re.compile(r"/oar\.slice/(?:[^/]+/)??oar-u(?P<uid>[0-9]+)-j(?P<id>[0-9]+)(?:\.slice|-s[^/]*)?(?:/|$)"),
        re.compile(r"/oar/[^/]+_(?P<id>[0-9]+)(?:/|$)"),
    ),
    variables=frozenset({"OAR_JOB_ID", "OAR_JOBID", "OAR_ARRAY_ID", "OAR_ARRAY_INDEX", *_FACTS.values()}),
    job=oar_job,
)
