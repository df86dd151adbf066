"""What the configuration decides about job attribution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SOURCES = ("slurm", "kubernetes", "ray", "cgroup", "mapping")
"""`slurm` stands for the batch systems: PBS and LSF are known by their environment, and PBS by its cgroup.
`cgroup` is what is left for processes of no scheduler: containers, systemd units, login sessions."""


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """`mapping_dir` is dcgm-exporter's --hpc-job-mapping-dir; /run/gpustat is looked at as well."""

    sources: tuple[str, ...] = SOURCES
    mapping_dir: Path | None = None

    def __post_init__(self) -> None:
        for source in self.sources:
            if source not in SOURCES:
                raise ValueError(f"sources: {source!r} is none of {', '.join(SOURCES)}")
