"""Pieces of queries that several boards share: the GPUs of a job, the nodes of a rack, what counts as throttling."""

from __future__ import annotations

HARMFUL = 'reason!~"gpu_idle|low_utilization|sw_power_cap"'
"""Reasons that cost work: not those of an idle GPU, nor the power cap at which a busy GPU lives."""


def of_job(expr: str) -> str:
    """GPU series of the GPUs that the job holds alone."""
    return f"({expr}) * on (instance, gpu, uuid) group_left () gpu:job_info:exclusive"


def in_rack(expr: str) -> str:
    """Node series of the nodes that know the rack as theirs."""
    return f"({expr}) and on (instance) coldplate_rack_nodes_expected"


def per_gpu(operator: str, expr: str) -> str:
    """One value for each GPU of a table."""
    return f"{operator} by (instance, gpu) ({expr})"
