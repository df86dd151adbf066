"""Which rows are watched for changes, and in which words a step of their value is told.

Rows that move all the time are no news: a change here is something that somebody who looks for a cause would want to
know to the second. The words go behind the names of what they are about: "GPU 3: ", "ports mlx5_3/1, mlx5_4/1: ".
"""

from __future__ import annotations

from collections.abc import Callable

from agent.model import Series

Telling = Callable[[Series, float, float], str]
"""The words for a step from one value to the next; empty if it is not worth any."""

STEADY_SHARE = 0.15
"""A clock that moves by a smaller share is at work as usual: one that is held by the power limit moves by a tenth."""
STEADY_SECONDS = 10.0
"""Seconds for which a level must stay elsewhere before it counts as changed: one step of a job is shorter."""
_NORMAL_REASONS = frozenset({"gpu_idle", "sw_power_cap"})
"""Reasons for a lower clock that come and go while everything is well."""


def _state(down: str, up: str) -> Telling:
    def tell(_: Series, before: float, now: float) -> str:
        return down if now < before else up

    return tell


def _throttled(series: Series, before: float, now: float) -> str:
    reason = dict(series.labels).get("reason", "")
    return "" if now <= before or reason in _NORMAL_REASONS else f"clocks held down by {reason}"


def _power_limit(_: Series, before: float, now: float) -> str:
    return f"power limit from {before:.0f} to {now:.0f} W" if abs(now - before) >= 1.0 else ""


def _grew(what: str) -> Telling:
    def tell(series: Series, before: float, now: float) -> str:
        return what.format(**dict(series.labels)) if now > before else ""

    return tell


def _uncorrected(series: Series, before: float, now: float) -> str:
    return "an uncorrected memory error" if now > before and ("type", "uncorrected") in series.labels else ""


STEPS: dict[str, Telling] = {
    "coldplate_gpu_up": _state("not answering", "answering again"),
    "coldplate_nvlink_up": _state("down", "up again"),
    "coldplate_infiniband_port_up": _state("down", "up again"),
    "coldplate_backend_up": _state("cannot be read", "read again"),
    "coldplate_gpu_throttle_active": _throttled,
    "coldplate_gpu_power_limit_watts": _power_limit,
    "coldplate_gpu_row_remap_pending": _state("", "a memory row waits to be remapped"),
    "coldplate_gpu_ecc_errors_total": _uncorrected,
    "coldplate_node_nvswitch_sxid_errors_total": _grew("SXid {sxid} of NVSwitch {pci}"),
}
"""Rows whose step from one snapshot to the next is a change."""

LEVELS: dict[str, tuple[str, float, str]] = {
    "coldplate_gpu_clock_hertz": ("SM clock", 1e-9, "GHz"),
}
"""Rows that wander: what they are called, and the factor and unit in which they are shown."""
LEVEL_LABELS = frozenset({("domain", "sm")})
"""Of a row with several series the one that is watched."""

MOMENTS: dict[str, str] = {
    "coldplate_gpu_xid_last_timestamp_seconds": "XID {xid}",
    "coldplate_job_start_timestamp_seconds": "job {job_id} began",
    "coldplate_config_last_reload_success_timestamp_seconds": "the agent's configuration was reloaded",
}
"""Rows whose value is the moment of the change, in Unix seconds."""
