"""The environment variables that may describe a job. No others are returned."""

from __future__ import annotations

KEYS = frozenset(
    b"SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_USER SLURM_JOB_ACCOUNT SLURM_JOB_PARTITION "
    b"SLURM_JOB_START_TIME SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID PBS_JOBID PBS_JOBNAME PBS_QUEUE "
    b"LSB_JOBID LSB_JOBINDEX LSB_JOBNAME LSB_QUEUE LSB_PROJECT_NAME "
    b"JOB_ID JOB_NAME QUEUE SGE_ROOT SGE_TASK_ID SGE_O_LOGNAME SGE_ACCOUNT "
    b"OAR_JOB_ID OAR_JOBID OAR_JOB_NAME OAR_PROJECT_NAME OAR_USER OAR_ARRAY_ID OAR_ARRAY_INDEX "
    b"FLUX_JOB_ID FLUX_JOB_ID_PATH _CONDOR_SLOT _CONDOR_SCRATCH_DIR "
    b"NOMAD_ALLOC_ID NOMAD_ALLOC_NAME NOMAD_JOB_NAME NOMAD_NAMESPACE NOMAD_DC "
    b"RAY_JOB_ID RAY_CLUSTER_NAME HOSTNAME".split()
)

OF_COMPONENT = b"_HET_GROUP_"
"""What Slurm puts between the name of a variable and the number of the job's component that it is about."""

LONGEST, MOST = 512, 128
"""Most bytes of a value, and most variables of one process."""


def job_variables(environ: bytes, keys: frozenset[bytes] = KEYS) -> dict[bytes, bytes]:
    """The variables of these names in a /proc/PID/environ; the first of equal ones counts, as it does for getenv."""
    found: dict[bytes, bytes] = {}
    for entry in environ.split(b"\0"):
        key, _, value = entry.partition(b"=")
        name, component, number = key.partition(OF_COMPONENT)
        if value and name in keys and (not component or (number.isdigit() and len(number) < 4)) and len(found) < MOST:
            found.setdefault(key, value[:LONGEST])
    return found


def joined(variables: dict[bytes, bytes]) -> bytes:
    """Variables in the form of a /proc/PID/environ."""
    return b"".join(b"%b=%b\0" % pair for pair in variables.items())
