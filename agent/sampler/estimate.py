"""Node power from GPU power, where nothing measures the node; labelled so, and never passed off as more.

On 8-GPU H100 nodes a BMC showed 1.1 times the sum of the GPUs' power plus 1.5 to 1.9 kW, with a
residual of about 1 kW (standard deviation): fans, processors, NICs and the loss in the supplies. The
constant is spread over the eight GPUs, so that smaller boards of the same kind get their share.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.catalogue import BY_NAME
from agent.model import Gpu, Node, Reading, Series

GPU_POWER = BY_NAME["coldplate_gpu_power_watts"]
SERIES = Series(BY_NAME["coldplate_node_power_watts"], Node(), (("source", "estimate"),))

FACTOR = 1.1
WATTS_PER_GPU = 1700.0 / 8


def estimate(readings: Sequence[Reading], gpus: Sequence[Gpu]) -> Reading | None:
    """The node's power; None unless the power of every GPU of the inventory is known.

    A sum without one of the GPUs would understate, just when something is wrong with the node.
    """
    power = {reading.entity: reading.value for reading in readings if reading.series.metric is GPU_POWER}
    if not gpus or any(gpu not in power for gpu in gpus):
        return None
    return Reading(SERIES, FACTOR * sum(power[gpu] for gpu in gpus) + WATTS_PER_GPU * len(gpus))
