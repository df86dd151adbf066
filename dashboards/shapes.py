"""Pieces of queries that several boards share: the GPUs of a job, the nodes of a rack, what counts as throttling."""

from __future__ import annotations

HARMFUL = 'reason!~"gpu_idle|low_utilization|sw_power_cap"'
"""Reasons that cost work: not those of an idle GPU, nor the power cap at which a busy GPU lives."""
THROTTLED = f"clamp_max(rate(coldplate_gpu_throttle_seconds_total{{{HARMFUL}}}[$__rate_interval]), 1)"
"""Share of time in which each of them held a GPU down; rate() extrapolates, so it may exceed 1 without the limit."""
BREACH = "(rack:time_to_breach_seconds:linear5m or (rack:power_ratio:max > 1) * 0)"
"""When a rack reaches its budget if its power keeps rising; 0 if it is already over it."""


ITS_GPUS = 'coldplate_gpu_job_info{mig="0"}'
"""Whole GPUs of the job: the agent names no job on one that several hold."""


def of_job(expr: str) -> str:
    """GPU series of the GPUs that the job holds alone."""
    return f"({expr}) * on (instance, gpu, uuid) group_left () {ITS_GPUS}"


def in_rack(expr: str) -> str:
    """Node series of the nodes that belong to the rack."""
    return f"({expr}) and on (instance) coldplate_rack_nodes_expected"


def per_gpu(operator: str, expr: str) -> str:
    """One value for each GPU of a table."""
    return f"{operator} by (instance, gpu) ({expr})"
