"""The supported schedulers, one file each: a file in this folder is found.

Each has a constant SCHEDULER, and gives its sources in its docstring. Its variables must be listed in
agent/broker/questions.py as well: what a privileged process returns is listed where it runs.
"""

from collections.abc import Iterable

from agent.backends.jobs.job import Scheduler
from agent.lib.discovery import modules_in


def discover(folders: Iterable[str], package: str) -> tuple[Scheduler, ...]:
    """Return the scheduler of every module in the folders of a package, the most trusted first."""
    found: list[Scheduler] = [module.SCHEDULER for module in modules_in(package, folders)]
    return tuple(sorted(found, key=lambda scheduler: (scheduler.rank, scheduler.name)))


SCHEDULERS = discover(__path__, __name__)
