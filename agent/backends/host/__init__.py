"""The host's own metrics: processors, memory, disks, network, pressure.

A GPU that waits is often starved by its host, so the rules need these beside the GPUs' metrics. This
does not replace node_exporter: it covers only physical disks and interfaces and local filesystems, and
nothing that grows with the number of containers, partitions or virtual interfaces.
Network and cluster filesystems are excluded, because querying one whose server is gone blocks; a local disk may
block as well, and then affects only its own filesystem.

Each group of figures is read separately, so that one file that is unreadable or hangs affects only its own rows.
"""

from agent.backends.host.host_backend import HostBackend
from agent.backends.host.kernel import parse_pressure
from agent.backends.registration import BackendContext

__all__ = ["HostBackend", "make_backend", "parse_pressure"]


def make_backend(context: BackendContext) -> HostBackend | None:
    """Return the host's backend, also beside synthetic devices, unless the configuration excludes it."""
    return HostBackend(str(context.procfs), str(context.sysfs)) if context.config.backends.host else None
