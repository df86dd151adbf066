"""NVIDIA GPUs through NVML. Importing this package loads no library: `NvmlSource.open` does."""

from agent.backends.nvml.nvml_source import NvmlSource
from agent.backends.protocol import SourceOptions

__all__ = ["NvmlSource", "make_source"]


def make_source(options: SourceOptions) -> NvmlSource:
    """Return the GPUs of this node, or those of the machine that a trace is of."""
    if not options.trace:
        return NvmlSource(wall=options.wall)
    from agent.backends.nvml.trace_replay import open_trace  # no node needs it that has GPUs

    return NvmlSource(wall=options.wall, load=lambda: open_trace(options.trace))
