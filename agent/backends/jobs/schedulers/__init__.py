"""The supported schedulers, one file each, the most trusted first.

Each file gives its sources in its docstring. Its variables must be listed in agent/broker/questions.py as well: what a
privileged process returns is listed where it runs.
"""

from agent.backends.jobs.job import Scheduler
from agent.backends.jobs.schedulers import flux, htcondor, kubernetes, lsf, nomad, oar, pbs, ray, sge, slurm

SCHEDULERS: tuple[Scheduler, ...] = tuple(
    sorted(
        (module.SCHEDULER for module in (flux, htcondor, kubernetes, lsf, nomad, oar, pbs, ray, sge, slurm)),
        key=lambda scheduler: (scheduler.rank, scheduler.name),
    )
)
