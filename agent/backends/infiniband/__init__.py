"""InfiniBand and RoCE ports, from `/sys/class/infiniband`.

One bad file must affect only itself: in node_exporter, a single counter that answers EINVAL removes every InfiniBand
metric of a node (its issue 3265). This package only reads sysfs; it sends no
management packets, starts no program and needs no privilege.
"""

from agent.backends.infiniband.infiniband_backend import InfinibandBackend
from agent.backends.registration import BackendContext

__all__ = ["InfinibandBackend", "make_backend"]


def make_backend(context: BackendContext) -> InfinibandBackend | None:
    """Return the ports' backend, unless the configuration excludes it or the devices are not this node's."""
    is_enabled = context.config.backends.infiniband and context.has_own_hardware
    return InfinibandBackend(context.sysfs) if is_enabled else None
