"""Slurm.

Cgroups: v2 by slurm.schedmd.com/cgroup_v2.html, where the scope has the node's name before it if several slurmd share a
machine; v1 by slurm.schedmd.com/cgroups.html. Variables: slurm.schedmd.com/sbatch.html, "output environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job
from agent.backends.jobs.scheduler import Scheduler


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def slurm_job(env: Mapping[str, str], within: str) -> Job | None:
    """The Slurm job that the environment names."""
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    if not (job.isascii() and job.isdigit()) or within not in ("", job):
        return None
    array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    return Job(
        "slurm",
        job,
        user=env.get("SLURM_JOB_USER", ""),
        name=env.get("SLURM_JOB_NAME", ""),
        account=env.get("SLURM_JOB_ACCOUNT", ""),
        partition=env.get("SLURM_JOB_PARTITION", ""),
        array=f"{array}_{task}" if array and task else "",
        started=_seconds(env.get("SLURM_JOB_START_TIME", "")),
    )


SCHEDULER = Scheduler(
    "slurm",
    rank=10,
    shapes=(
        re.compile(r"/(?:[^/]*_)?slurmstepd\.scope/job_(?P<id>[0-9]+)(?:/|$)"),
        re.compile(r"/slurm(?:_[^/]*)?/uid_(?P<uid>[0-9]+)/job_(?P<id>[0-9]+)(?:/|$)"),
    ),
    variables=frozenset(
        {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION",
         "SLURM_JOB_START_TIME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"}
    ),
    job=slurm_job,
)  # fmt: skip
