"""Pieces of queries that several boards share: the GPUs of a job, the nodes of a rack, what counts as throttling."""

from __future__ import annotations

HARMFUL = 'reason!~"gpu_idle|low_utilization|sw_power_cap"'
"""Reasons that cost work: not those of an idle GPU, nor the power cap at which a busy GPU lives."""
THROTTLED = f"clamp_max(rate(coldplate_gpu_throttle_seconds_total{{{HARMFUL}}}[$__rate_interval]), 1)"
"""Share of time in which each of them held a GPU down; rate() reckons beyond the samples, and so beyond all of it."""
BREACH = "(rack:time_to_breach_seconds:linear5m or (rack:power_ratio:max > 1) * 0)"
"""When a rack meets its budget if its power goes on rising; 0 where it is over it already."""


def of_job(expr: str) -> str:
    """GPU series of the GPUs that the job holds alone."""
    return f"({expr}) * on (instance, gpu, uuid) group_left () gpu:job_info:exclusive"


def in_rack(expr: str) -> str:
    """Node series of the nodes that know the rack as theirs."""
    return f"({expr}) and on (instance) coldplate_rack_nodes_expected"


def per_gpu(operator: str, expr: str) -> str:
    """One value for each GPU of a table."""
    return f"{operator} by (instance, gpu) ({expr})"
