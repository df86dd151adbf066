"""What is wrong in a job of many nodes, told in their pages: one slow GPU, one slow rail, and what looks like each.

In a synchronous job a slow GPU does the same work as its peers: its tensor cores are active for a larger share of fewer
cycles, as the fault `slow` has it. The pages here are changed ones of a single node, so no fault of a site is played.
"""

from __future__ import annotations

import re

SLOW_GPU, MORE_WORK = (5, "3"), (9, "2")
"""Node and GPU."""
SLOW_RAIL, OTHER_PART = (12, "mlx5_4"), (20, "mlx5_[0-9]")
"""Node and device."""
_CLOCK, _TENSOR = "gpu_clock_mean_hertz", "gpu_tensor_active_mean_ratio"
_BYTES = "infiniband_port_data_(?:transmitted|received)_bytes_total"


def injected(number: int, page: bytes) -> bytes:
    """The page of the node of this number with its fault, if it has one."""
    if number == SLOW_GPU[0]:
        return _slowed(page, SLOW_GPU[1], work=1.0)
    if number == MORE_WORK[0]:
        return _slowed(page, MORE_WORK[1], work=1.2)
    for node, device in (SLOW_RAIL, OTHER_PART):
        if number == node:
            return _times(page, _BYTES, f'device="{device}"', 0.1)
    return page


def _slowed(page: bytes, gpu: str, work: float) -> bytes:
    """Return the page with a GPU at 0.85 of its clock, and so much of its work."""
    page = _times(page, _CLOCK, f'gpu="{gpu}"', 0.85)
    return _times(page, _TENSOR, f'gpu="{gpu}"', work / 0.85)


def _times(page: bytes, name: str, label: str, factor: float) -> bytes:
    lines = re.compile(rf"^(coldplate_{name}\{{{label},.*\}} )(\S+)$".encode(), re.MULTILINE)
    changed, count = lines.subn(lambda found: found[1] + b"%.9g" % (float(found[2]) * factor), page)
    assert count, f"no {name} of {label} in the page"
    return changed
