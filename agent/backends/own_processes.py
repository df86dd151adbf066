"""The agent's own cost: processor time and resident memory of its processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from agent.catalogue import BY_NAME
from agent.model import Node, Reading, Series

CPU = BY_NAME["coldplate_process_cpu_seconds_total"]
MEMORY = BY_NAME["coldplate_process_resident_memory_bytes"]


class OwnProcesses:
    """Reads /proc/PID/stat (proc(5): fields 14 and 15 are user and system ticks, 24 is resident pages)."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._tick = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._series: dict[str, tuple[Series, Series]] = {}
        self._spent: dict[str, tuple[int, float, float]] = {}
        """By role: its process, that process's seconds so far, and those of the earlier processes in the role."""

    def read(self, pids: Mapping[str, int]) -> list[Reading]:
        """Return readings of each process that still exists; `pids` by role.

        A role's seconds keep growing when another process takes it over.
        """
        rows = []
        for role, pid in pids.items():
            try:
                text = (self._procfs / str(pid) / "stat").read_text()
                fields = text.rpartition(")")[2].split()
                seconds = (int(fields[11]) + int(fields[12])) / self._tick
                resident = float(int(fields[21]) * self._page)
            except (OSError, ValueError, IndexError, OverflowError):
                continue  # it ended since
            cpu, memory = self._series.get(role) or self._make(role)
            rows += [Reading(cpu, self._total(role, pid, seconds)), Reading(memory, resident)]
        return rows

    def _total(self, role: str, pid: int, seconds: float) -> float:
        known, last, before = self._spent.get(role, (pid, 0.0, 0.0))
        if known != pid:
            before += last
        self._spent[role] = (pid, seconds, before)
        return before + seconds

    def _make(self, role: str) -> tuple[Series, Series]:
        labels = (("process", role),)
        pair = self._series[role] = (Series(CPU, Node(), labels), Series(MEMORY, Node(), labels))
        return pair
