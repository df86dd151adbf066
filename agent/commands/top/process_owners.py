"""Say of each process of a GPU whose it is and what it runs, from procfs, or from the scenario of a synthetic node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.backends.jobs.environments import UserNames
from agent.backends.jobs.process_table import parse_stat, parse_uid
from agent.backends.protocol import GpuProcess
from agent.backends.synthetic.job_processes import owner_of
from agent.backends.synthetic.scenario import Scenario
from agent.commands.top.screen.node_samples import ProcessRow
from agent.lib.textfile import ReadError, read_bytes
from agent.model import Gpu

MOST_PROCESSES = 64
"""Processes of one GPU that are looked into, those with the most memory."""
_MOST_BYTES = 8192
OwnerOf = Callable[[int, float], tuple[str, str]]
"""Return user and command of a process at a monotonic second; each is empty if it is not known."""


class ProcfsOwners:
    """Read from below `procfs`. /proc/PID/stat and status are world-readable, and never wait for the process."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._names = UserNames(timeout=0.0)  # a name that a directory server is slow to give comes with a later look

    def __call__(self, pid: int, mono: float) -> tuple[str, str]:
        """Return the user's name, or number if it has none, and the command as the kernel keeps it."""
        folder = self._procfs / str(pid)
        try:
            uid = parse_uid(read_bytes(folder / "status", _MOST_BYTES))
            command = parse_stat(read_bytes(folder / "stat", _MOST_BYTES)).command
        except (ReadError, ValueError):
            return "", ""  # it has ended, or is one that this user may not see
        return self._names.name(uid, mono) or str(uid), command


def scenario_owners(scenario: Scenario) -> OwnerOf:
    """Return what the scenario says of its processes."""
    return lambda pid, _: owner_of(scenario, pid)


def list_processes(
    listed: Mapping[Gpu, Sequence[GpuProcess]], owner: OwnerOf, mono: float
) -> dict[Gpu, Sequence[ProcessRow]]:
    """Return the processes of each GPU, those with the most memory first."""
    shown: dict[Gpu, Sequence[ProcessRow]] = {}
    for gpu, processes in listed.items():
        ranked = sorted(processes, key=lambda each: (-(each.memory or 0), each.pid))[:MOST_PROCESSES]
        shown[gpu] = [ProcessRow(each.pid, each.memory, *owner(each.pid, mono)) for each in ranked]
    return shown
