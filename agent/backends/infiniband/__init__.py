"""InfiniBand and RoCE ports, from `/sys/class/infiniband`.

One bad file must cost exactly itself here: a single counter that answers EINVAL takes every InfiniBand
metric of a node away from node_exporter (its issue 3265). This package only reads sysfs; it sends no
management packets, starts no program and needs no privilege.
"""

from agent.backends.infiniband.infiniband_backend import InfinibandBackend

__all__ = ["InfinibandBackend"]
