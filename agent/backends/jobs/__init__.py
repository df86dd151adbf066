"""Which jobs use the GPUs: Slurm, Kubernetes, Ray and others, without a prolog or plugin."""

from agent.backends.jobs.jobs_backend import READ, SOURCES, JobsBackend, check_jobs
from agent.backends.registration import BackendContext
from agent.config.schema import MINOR

__all__ = ["SOURCES", "JobsBackend", "check_jobs", "make_backend"]


def make_backend(context: BackendContext) -> JobsBackend | None:
    """Return the jobs backend, if GPUs of this node are read and a source of jobs is configured. Raises ConfigError."""
    config = context.config
    if not (context.has_driver and config.jobs.sources):
        return None
    check_jobs(config.jobs)
    return JobsBackend(
        context.procfs,
        context.processes,
        context.reader_of(READ),
        sources=config.jobs.sources,
        mapping_dir=config.jobs.mapping_dir,
        mapping_by_minor=config.jobs.mapping_names == MINOR,
        trust_environment=config.jobs.trust_environment,
        cgroups=str(context.sysfs / "fs" / "cgroup"),
    )
