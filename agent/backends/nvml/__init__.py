"""NVIDIA GPUs through NVML. Importing this package loads no library: `NvmlSource.open` does."""

from agent.backends.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
