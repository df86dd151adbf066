"""The few sentences that an expert would say of a run: what is broken, where time was lost, what kind of work it is."""

from __future__ import annotations

from agent.recording.report.hardware_remarks import hardware_remarks
from agent.recording.report.remarks import RANKS, Remark
from agent.recording.report.run_facts import Run
from agent.recording.report.slowness_remarks import slowness_remarks
from agent.recording.report.workload_remarks import workload_remarks

_WAITING = frozenset({"waiting-for-peer", "stalled", "waiting-for-data", "idle-allocation"})
_BY_WORK_ALONE = frozenset({"latency-bound", "neither-bound", "mixed", "compute-bound", "memory-bound"})
"""What limits the work of GPUs that wait is not in the GPUs: nothing is said of it then."""


def remarks(run: Run) -> list[Remark]:
    """What stands out, the most serious first; empty if nothing does."""
    found = list(hardware_remarks(run))
    for _, gpus in run.groups():
        slow = list(slowness_remarks(gpus))
        waited = any(remark.kind in _WAITING for remark in slow)
        found += slow
        found += [remark for remark in workload_remarks(gpus) if not waited or remark.kind not in _BY_WORK_ALONE]
    return sorted(found, key=lambda remark: RANKS.index(remark.rank))
