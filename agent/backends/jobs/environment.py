"""What a process's environment says about its job. Only the known variables are looked at.

An environment is written by the user: it names a job where the cgroup does not, and adds facts to it; it never
overrules what the kernel says.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.backends.jobs.job import Job, legible
from agent.broker.variables import job_variables

NIL_RAY_JOB = "ffffffff"
"""Ray's id for no job at all."""


def known_keys(data: bytes) -> dict[str, str]:
    """The known variables of a /proc/PID/environ, as the values of labels."""
    found = job_variables(data).items()
    return {key.decode("ascii"): legible(value.decode("utf-8", "replace")) for key, value in found}


def slurm_job(env: Mapping[str, str]) -> Job | None:
    """The Slurm job that the environment names."""
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    if not (job.isascii() and job.isdigit()):
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


def pbs_job(env: Mapping[str, str]) -> Job | None:
    """The PBS job that the environment names."""
    job = env.get("PBS_JOBID")
    return Job("pbs", job, name=env.get("PBS_JOBNAME", ""), partition=env.get("PBS_QUEUE", "")) if job else None


def lsf_job(env: Mapping[str, str]) -> Job | None:
    """The LSF job that the environment names; the elements of an array share its LSB_JOBID."""
    job, index = env.get("LSB_JOBID"), env.get("LSB_JOBINDEX", "0")
    if not job:
        return None
    return Job(
        "lsf",
        job if index == "0" else f"{job}[{index}]",
        name=env.get("LSB_JOBNAME", ""),
        account=env.get("LSB_PROJECT_NAME", ""),
        partition=env.get("LSB_QUEUE", ""),
    )


def ray_job(env: Mapping[str, str], cluster: str) -> Job | None:
    """The Ray job that the environment names; `cluster` tells it from those that other clusters number the same."""
    job = env.get("RAY_JOB_ID", "")
    return Job("ray", legible(f"{job}@{cluster}")) if job and job != NIL_RAY_JOB else None


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
