"""The configuration of job attribution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.backends.jobs.schedulers import SCHEDULERS

SOURCES = (*(scheduler.name for scheduler in SCHEDULERS), "cgroup", "mapping")
"""`cgroup` is what is left for processes of no scheduler: containers, systemd units, login sessions."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """`mapping_dir` is dcgm-exporter's --hpc-job-mapping-dir; /run/gpustat is looked at as well.

    `trust_environment` names schedulers whose variables count in every process, for nodes where neither cgroups nor a
    unit of the scheduler show what it started. Whoever can log in there can name any job.
    """

    sources: tuple[str, ...] = (ALL,)
    mapping_dir: Path | None = None
    trust_environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for source in self.sources:
            if source not in (ALL, *SOURCES):
                raise ValueError(f"sources: {source!r} is unknown; use any of {', '.join((ALL, *SOURCES))}")

        names = tuple(scheduler.name for scheduler in SCHEDULERS)
        for name in self.trust_environment:
            if name not in names:
                raise ValueError(f"trust_environment: {name!r} is unknown; use any of {', '.join(names)}")

    def has(self, source: str) -> bool:
        """Whether this source is asked."""
        return ALL in self.sources or source in self.sources
