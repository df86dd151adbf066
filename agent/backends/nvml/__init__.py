"""NVIDIA GPUs through NVML. Importing this package loads no library: `NvmlSource.open` does."""

from agent.backends.nvml.nvml_source import NvmlSource

__all__ = ["NvmlSource"]
