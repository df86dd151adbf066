"""What a daemon holds: memory, descriptors, threads and files, looked at every now and then."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.lab.bench.processes import MIB, proportional_memory
from tests.lab.soak.trend import Trend

MEMORY_LIMIT = float(MIB)
FLAT = 1.0
"""A count that grows by less has not grown."""


def mebibytes(value: float) -> str:
    return f"{value / MIB:+.2f} MiB"


def number(value: float) -> str:
    return f"{value:+.1f}"


class Footprint:
    """The figures of processes by their names, and of a folder in which they keep their state.

    Memory is what is the process's own and no file's (`Anonymous` of smaps_rollup, proc(5)): everything that a program
    allocates. PSS is told beside it. It counts the pages of libraries as well, each with its share, and changes with
    every program of the same libraries that somebody else starts or ends.
    """

    def __init__(self, pids: Mapping[str, int], state: Path) -> None:
        self._pids = dict(pids)
        self._state = state
        self._memory = {name: Trend(f"memory of {name}", MEMORY_LIMIT, mebibytes) for name in self._pids}
        self._shares = {name: Trend(f"  PSS of {name}", None, mebibytes) for name in self._pids}
        self._descriptors = {name: Trend(f"descriptors of {name}", FLAT, number) for name in self._pids}
        self._threads = {name: Trend(f"threads of {name}", FLAT, number) for name in self._pids}
        self._files = Trend("state files", FLAT, number)
        self._bytes = Trend("bytes of the state files", MEMORY_LIMIT, mebibytes)

    @property
    def trends(self) -> list[Trend]:
        kinds = (self._memory, self._shares, self._descriptors, self._threads)
        return [*(trend for kind in kinds for trend in kind.values()), self._files, self._bytes]

    def follow(self, name: str, pid: int) -> None:
        """From now on the figures of that name are another process's."""
        self._pids[name] = pid

    def look(self, at: float) -> None:
        """Note all figures; those of a process that has ended are as they were."""
        for name, pid in self._pids.items():
            with suppress(OSError):
                self._look_at(name, Path(f"/proc/{pid}"), at)
        sizes = []
        for folder, _, names in os.walk(self._state):
            for each in names:
                with suppress(OSError):  # it was renamed in between
                    sizes.append((Path(folder) / each).stat().st_size)
        self._files.note(at, len(sizes))
        self._bytes.note(at, sum(sizes))

    def _look_at(self, name: str, process: Path, at: float) -> None:
        memory = _anonymous(process)
        share = proportional_memory(int(process.name))
        self._descriptors[name].note(at, len(os.listdir(process / "fd")))
        self._threads[name].note(at, len(os.listdir(process / "task")))
        self._memory[name].note(at, memory)
        self._shares[name].note(at, share)


def _anonymous(process: Path) -> float:
    text = (process / "smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:")) * 1024.0
