"""Slurm.

Cgroups: v2 by slurm.schedmd.com/cgroup_v2.html, where the scope has the node's name before it if several slurmd share a
machine, and is in the slice that CgroupSlice names (cgroup.conf(5)); v1 by slurm.schedmd.com/cgroups.html. Since 26.05
a job's cgroup has its SLUID (src/common/sluid.c) in place of job_ID, unless CgroupJobIdPaths=yes. Variables:
slurm.schedmd.com/sbatch.html, "output environment variables", and heterogeneous_jobs.html. Without cgroups
(proctrack/linuxproc) jobs stay in the unit of slurmd.
"""

import re
from collections.abc import Mapping

from agent.backends.jobs.job import Job, Scheduler

COMPONENT = "SLURM_JOB_ID_HET_GROUP_"

SCOPE = r"(?:[^/]*_)?slurmstepd\.scope"
VERSION_1 = r"slurm(?:_[^/]*)?"
"""Names of the cgroups that hold the jobs: with version 2 of cgroups, and above the users' with version 1."""
SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
"""A Slurm Lexicographically-sortable Unique ID: 13 characters of Crockford's base 32."""
JOB = rf"(?!(?:system|slurmd|[^/]+\.slice)(?:/|$))(?:job_(?P<id>[0-9]+)|(?P<sluid>{SLUID.pattern})|(?P<unknown>[^/]+))"
"""A job below the scope. Beside jobs are Slurm's `system` and `slurmd`, and a slice where slurmd is in a container."""


def _id_in(match: re.Match[str]) -> str:
    names = match.groupdict()
    return names["id"] or names.get("sluid") or names["unknown"]


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _component(env: Mapping[str, str], within: str) -> str:
    """Return the number of the heterogeneous job's component that has this id; "" if it is not one."""
    marked = (key.removeprefix(COMPONENT) for key, value in env.items() if within and value == within)
    return next((number for number in marked if number.isdigit()), "")


def slurm_job(env: Mapping[str, str], within: str) -> Job | None:
    """Return the Slurm job that the environment names.

    Each component of a heterogeneous job is a job with an id and a cgroup of its own, but every task finds the first
    one's id in SLURM_JOB_ID (task_state_create in src/slurmd/slurmstepd), and the facts of each in variables that end
    in its number. It is shown as Slurm shows it: 123+1.

    Where the cgroup has the job's SLUID, the environment must name the same. It does not say which component of a
    heterogeneous job that is.
    """
    if SLUID.fullmatch(within):
        if env.get("SLURM_JOB_SLUID") != within or any(name.startswith(COMPONENT) for name in env):
            return None
        within = ""
    leader = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    number = _component(env, within)
    job = within if number else leader
    if not (leader.isascii() and leader.isdigit()) or within not in ("", job):
        return None
    array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")

    def fact(name: str) -> str:
        return env.get(f"{name}_HET_GROUP_{number}" if number else name) or env.get(name, "")

    part = f"{array}_{task}" if array and task else ""
    if number:
        part = f"{leader}+{number}"
    return Job(
        "slurm",
        job,
        user=fact("SLURM_JOB_USER"),
        name=fact("SLURM_JOB_NAME"),
        account=fact("SLURM_JOB_ACCOUNT"),
        partition=fact("SLURM_JOB_PARTITION"),
        array=part,
        started=_seconds(fact("SLURM_JOB_START_TIME")),
    )


SCHEDULER = Scheduler(
    "slurm",
    rank=10,
    shapes=(
        re.compile(rf"(?:/{SCOPE}(?:/[^/]+\.slice)+)*/{SCOPE}/{JOB}(?:/|$)"),
        re.compile(rf"/{VERSION_1}/uid_(?P<uid>[0-9]+)/job_(?P<id>[0-9]+)(?:/|$)"),
    ),
    variables=frozenset(
        {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_SLUID", "SLURM_JOB_NAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT",
         "SLURM_JOB_PARTITION", "SLURM_JOB_START_TIME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
         "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"}
    ),
    job=slurm_job,
    daemons=re.compile(rf"slurmd(?:@[^/]*)?\.service|{SCOPE}"),
    job_id=_id_in,
)  # fmt: skip
