"""Grid Engine: Sun's, its free successors, Univa's and Altair's.

Variables: submit(1), "ENVIRONMENTAL VARIABLES", the same in all. Cgroups: Univa and Altair make UGE/ID.TASK or
AGE/ID.TASK where sge_conf(5) has cgroup_path. Open Cluster Scheduler and Gridware make scopes of systemd below a slice
whose name the site chooses, ocs6444 by default; the tasks of a parallel job share a slice
(job_get_systemd_slice_and_scope in source/libs/sgeobj of hpc-gridware/clusterscheduler). The others make
none, and leave jobs in the unit of sge_execd.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler, job_with

_FACTS = {"user": "SGE_O_LOGNAME", "name": "JOB_NAME", "account": "SGE_ACCOUNT", "partition": "QUEUE"}


def _unit_task(match: re.Match[str]) -> str:
    return _numbered(match["id"], match["task"] or "")


def _numbered(job: str, task: str) -> str:
    """Return a job, or the task of an array job, as qstat(1) writes it; else the task is "undefined" or 1."""
    return f"{job}.{task}" if task not in ("", "undefined") else job


_JOBS_SLICE = r"/(?P<site>[^/]+)\.slice/(?P=site)-jobs\.slice"
_NUMBERS = r"(?P<id>[0-9]+)(?:\.(?P<task>[0-9]+))?"


def sge_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the job that the environment names. Others use the name JOB_ID as well, so SGE_ROOT must be there, too."""
    job = env.get("JOB_ID", "")
    if not (job.isascii() and job.isdigit() and env.get("SGE_ROOT")):
        return None
    named = _numbered(job, env.get("SGE_TASK_ID", ""))
    if within not in ("", named, job, f"{named}.1", f"{job}.1"):
        return None
    return job_with("sge", within or named, env, _FACTS)


SCHEDULER = Scheduler(
    "sge",
    rank=40,
    shapes=(
        re.compile(r"/(?:UGE|AGE)/(?P<id>[0-9]+)(?:\.(?P<task>[0-9]+|undefined))?(?:/|$)"),
        re.compile(rf"{_JOBS_SLICE}/(?P=site)-jobs-{_NUMBERS}\.slice(?:/|$)"),
        re.compile(rf"{_JOBS_SLICE}/(?P=site)\.{_NUMBERS}\.scope(?:/|$)"),
    ),
    variables=frozenset({"JOB_ID", "SGE_ROOT", "SGE_TASK_ID", *_FACTS.values()}),
    job=sge_job,
    daemons=re.compile(r"(?:sge_execd|sgeexecd(?:\.[^/]+)?|gridengine-exec|[og]cs[0-9]*-execd)\.service"),
    job_id=_unit_task,
)
