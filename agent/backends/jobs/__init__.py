"""Who uses the GPUs: jobs of Slurm, Kubernetes, Ray and others, found without a prolog or a plugin of theirs."""

from agent.backends.jobs.backend import JobsBackend
from agent.backends.jobs.settings import SOURCES, JobsConfig

__all__ = ["SOURCES", "JobsBackend", "JobsConfig"]
