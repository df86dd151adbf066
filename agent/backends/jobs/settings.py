"""What the configuration decides about job attribution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.backends.jobs.schedulers import SCHEDULERS

SOURCES = (*(scheduler.name for scheduler in SCHEDULERS), "cgroup", "mapping")
"""`cgroup` is what is left for processes of no scheduler: containers, systemd units, login sessions."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """`mapping_dir` is dcgm-exporter's --hpc-job-mapping-dir; /run/gpustat is looked at as well."""

    sources: tuple[str, ...] = (ALL,)
    mapping_dir: Path | None = None

    def __post_init__(self) -> None:
        for source in self.sources:
            if source not in (ALL, *SOURCES):
                raise ValueError(f"sources: {source!r} is none of {', '.join((ALL, *SOURCES))}")

    def has(self, source: str) -> bool:
        """Whether this source is asked."""
        return ALL in self.sources or source in self.sources
