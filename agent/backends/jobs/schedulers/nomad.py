"""HashiCorp Nomad.

Cgroups: ALLOCATION.TASK.scope in /nomad.slice, since 1.7 in its share.slice or reserve.slice, and /nomad of version 1
(client/lib/cgroupslib). The containers of its docker driver are below the same slice. Variables: "runtime environment
settings" of its documentation.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler, job_with

_FACTS = {
    "name": "NOMAD_JOB_NAME",
    "namespace": "NOMAD_NAMESPACE",
    "array": "NOMAD_ALLOC_NAME",
    "partition": "NOMAD_DC",
}
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def nomad_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the allocation that the environment names, under the name of its job."""
    job = env.get("NOMAD_ALLOC_ID", "")
    if not job or within not in ("", job):
        return None
    return job_with("nomad", job, env, _FACTS)


SCHEDULER = Scheduler(
    "nomad",
    rank=60,
    shapes=(re.compile(rf"/nomad(?:\.slice)?/(?:[a-z]+(?:\.slice)?/)?(?P<id>{_UUID})\.[^/]+(?:/|$)"),),
    variables=frozenset({"NOMAD_ALLOC_ID", *_FACTS.values()}),
    job=nomad_job,
    daemons=re.compile(r"nomad\.service|nomad\.slice"),
)
