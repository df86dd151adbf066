"""Who uses the GPUs: jobs of Slurm, Kubernetes, Ray and others, found without a prolog or a plugin of theirs."""

from agent.backends.jobs.job_settings import SOURCES, JobSettings
from agent.backends.jobs.jobs_backend import JobsBackend

__all__ = ["SOURCES", "JobSettings", "JobsBackend"]
