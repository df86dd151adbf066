"""How fast a counter can plausibly grow, on the largest node there is and the next one after it.

A counter that grows faster is taken for garbage and left out, so a bound that a healthy node reaches hides it. They
leave room for what is sold next; what they must still catch are the patterns that a damaged counter shows: all
ones in 32 or in 64 bits.
"""

from __future__ import annotations

from math import inf

from agent.model import Metric, Unit

USUAL = {
    # Joules: no GPU draws 5 kW. Seconds: of one device's time share, which cannot exceed 1, with room for the device's
    # own clock. Bytes: all NVLinks of a Blackwell GPU carry 1.8 TB/s (both ways), of a Rubin GPU 3.6 TB/s.
    Unit.JOULES: 5_000.0,
    Unit.SECONDS: 2.0,
    Unit.BYTES: 4e12,
    # Errors and events, and packets of a slow port.
    Unit.NONE: 1e9,
}
"""Most growth per second, in the unit."""

PACKETS = 1e10
"""Packets a second, in one direction: 800 Gb/s carry 1.2e9 of the shortest, of 84 bytes with their gap."""
PROCESSORS = 1e5
"""Processor seconds a second: as many as there are processors, of which Linux serves 8,192."""
NODE_WATTS = 1e5
"""Joules a second for a counter of part of a node."""
JOB_WATTS = 1e6
"""Joules a second for all GPUs that one job has on a node."""
GPU_SECONDS = 2048.0
"""Seconds a second, added up over the GPUs of a node: at most 1,024 of them."""
ANYTHING = 4e12
"""For an unknown counter, which may count bytes."""


def growth_of(row: Metric) -> float:
    """The most that a counter can grow in a second, in its row's unit."""
    return row.growth if row.growth is not None else USUAL.get(row.unit, inf)
