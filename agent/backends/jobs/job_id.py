"""One id for all processes of a job whose cgroup does not contain the complete id. Pure.

HTCondor's and LSF's cgroups leave a part of the id to the environment, which may be hidden for some of the processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.backends.jobs.process_table import Process


def agreed(processes: Mapping[int, Process]) -> dict[int, Process]:
    """The processes, with one id per cgroup: the one on which their environments agree, or else the cgroup's own."""
    told: dict[tuple[str, str], set[str]] = {}
    for process in processes.values():
        if process.job is not None and process.within is not None:
            told.setdefault(process.within, set()).update({process.job.id} - {process.within[1]})
    return {pid: _called(process, told) for pid, process in processes.items()}


def _called(process: Process, told: Mapping[tuple[str, str], set[str]]) -> Process:
    if process.job is None or process.within is None:
        return process
    ids = told[process.within]
    job = next(iter(ids)) if len(ids) == 1 else process.within[1]
    return process if job == process.job.id else replace(process, job=replace(process.job, id=job))
