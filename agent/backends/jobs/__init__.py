"""Who uses the GPUs: jobs of Slurm, Kubernetes, Ray and others, found without a prolog or a plugin of theirs."""

from agent.backends.jobs.job_sources import SOURCES, refuse_unknown
from agent.backends.jobs.jobs_backend import JobsBackend

__all__ = ["SOURCES", "JobsBackend", "refuse_unknown"]
