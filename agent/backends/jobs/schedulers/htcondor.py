"""HTCondor.

Cgroups: condor_DIRECTORY_SLOT below BASE_CGROUP, whose default is htcondor, or below condor.service (HTCondor manual,
"cgroup-based process tracking"). Variables: the manual's "services for running jobs". Neither has the job's number,
which is in a file of the user's: a job is known by its slot, and by its scratch directory, which no two jobs share.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler

_SCRATCH = re.compile(r"/(dir_[0-9]+)(?:/|$)")


def condor_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the slot and scratch directory of the environment, as slot1_2/dir_4711."""
    slot = env.get("_CONDOR_SLOT", "").partition("@")[0]
    scratch = _SCRATCH.search(env.get("_CONDOR_SCRATCH_DIR", ""))
    if not slot or within not in ("", slot):
        return None
    return Job("htcondor", f"{slot}/{scratch[1]}" if scratch else slot)


SCHEDULER = Scheduler(
    "htcondor",
    rank=55,
    shapes=(
        re.compile(
            r"/(?:htcondor|condor\.service)/(?:[^/]*/)??(?:[^/]*_)?(?P<id>slot[0-9]+(?:_[0-9]+)?)(?:@[^/]*)?(?:/|$)"
        ),
    ),
    variables=frozenset({"_CONDOR_SLOT", "_CONDOR_SCRATCH_DIR"}),
    job=condor_job,
    daemons=re.compile(r"condor\.service"),
)
