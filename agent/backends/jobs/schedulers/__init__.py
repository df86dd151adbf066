"""The schedulers that are known, one file each: a file that is put here is found.

Each has a constant SCHEDULER, and says in its docstring where its facts are from. Its variables must stand in
agent/broker/job_variables.py as well: what a privileged process tells is listed where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

from agent.backends.jobs.scheduler import Scheduler


def discover(folders: Iterable[str], package: str) -> tuple[Scheduler, ...]:
    """The scheduler of every module in the folders of a package, in the order of belief."""
    found: list[Scheduler] = [import_module(f"{package}.{each.name}").SCHEDULER for each in iter_modules(folders)]
    return tuple(sorted(found, key=lambda scheduler: (scheduler.rank, scheduler.name)))


SCHEDULERS = discover(__path__, __name__)
