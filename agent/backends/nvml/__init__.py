"""NVIDIA GPUs through NVML. Importing this package loads no library: `NvmlSource.open` does."""

from __future__ import annotations

from agent.backends.device_sources import SourceOptions
from agent.backends.nvml.nvml_source import NvmlSource

__all__ = ["NvmlSource", "make_source"]


def make_source(options: SourceOptions) -> NvmlSource:
    """Return the GPUs of this node."""
    return NvmlSource(wall=options.wall)
