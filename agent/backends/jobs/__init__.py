"""Which jobs use the GPUs: Slurm, Kubernetes, Ray and others, without a prolog or plugin."""

from __future__ import annotations

from pathlib import Path

from agent.backends.jobs.job_settings import SOURCES, JobSettings
from agent.backends.jobs.jobs_backend import JobsBackend
from agent.backends.registration import BackendContext
from agent.config.schema import Config, ConfigError

__all__ = ["SOURCES", "JobSettings", "JobsBackend", "jobs_config", "make_backend"]


def make_backend(context: BackendContext) -> JobsBackend | None:
    """Who holds the GPUs, where some of this node are read and a source of jobs is wanted. Raises ConfigError."""
    config = context.config
    if not (context.has_driver and config.jobs.sources):
        return None
    return JobsBackend(context.procfs, context.processes, context.readings, jobs_config(config))


def jobs_config(config: Config) -> JobSettings:
    """How jobs are found. Raises ConfigError."""
    folder = config.jobs.mapping_dir
    try:
        found = None if folder is None else Path(folder)
        return JobSettings(config.jobs.sources, found, config.jobs.trust_environment)
    except ValueError as error:
        raise ConfigError(f"jobs.{error}") from error
