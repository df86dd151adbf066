"""Which jobs use the GPUs: Slurm, Kubernetes, Ray and others, without a prolog or plugin."""

from __future__ import annotations

from agent.backends.jobs.jobs_backend import READ, SOURCES, JobsBackend, refuse_unknown
from agent.backends.registration import BackendContext
from agent.config.schema import Config, ConfigError

__all__ = ["SOURCES", "JobsBackend", "check_jobs", "make_backend"]


def make_backend(context: BackendContext) -> JobsBackend | None:
    """Return the jobs backend, if GPUs of this node are read and a source of jobs is configured. Raises ConfigError."""
    config = context.config
    if not (context.has_driver and config.jobs.sources):
        return None
    check_jobs(config)
    return JobsBackend(
        context.procfs,
        context.processes,
        context.reader_of(READ),
        sources=config.jobs.sources,
        mapping_dir=config.jobs.mapping_dir,
        trust_environment=config.jobs.trust_environment,
        cgroups=str(context.sysfs / "fs" / "cgroup"),
    )


def check_jobs(config: Config) -> None:
    """Refuse sources and schedulers that do not exist. Raises ConfigError."""
    try:
        refuse_unknown(config.jobs.sources, config.jobs.trust_environment)
    except ValueError as error:
        raise ConfigError(f"jobs.{error}") from error
