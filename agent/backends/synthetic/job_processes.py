"""The processes of a scenario's jobs: one on each GPU that a job holds."""

from __future__ import annotations

from agent.backends.protocol import GpuProcess
from agent.backends.synthetic.scenario import Scenario, ScenarioJob

FIRST_PID = 2**22 + 1
"""Linux gives no process an id above 2^22 (PID_MAX_LIMIT), so a synthetic one is never that of a real process."""
COMMAND = "python3"
"""The program of every job."""
_GPUS = 1024
"""Ids that each job has, one for each GPU."""


def processes_of(scenario: Scenario, job: ScenarioJob | None, gpu: int, memory: float) -> tuple[GpuProcess, ...]:
    """Return the process of the job that holds the GPU, with the bytes of memory in use; none without a job."""
    if job is None:
        return ()
    return (GpuProcess(FIRST_PID + scenario.jobs.index(job) * _GPUS + gpu, int(memory)),)


def owner_of(scenario: Scenario, pid: int) -> tuple[str, str]:
    """Return user and command of a synthetic process; empty where the scenario has none of that id."""
    place = (pid - FIRST_PID) // _GPUS
    if not 0 <= place < len(scenario.jobs):
        return "", ""
    return scenario.jobs[place].user, COMMAND
