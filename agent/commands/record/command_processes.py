"""The processes of the recorded command: how many there are, what they used, and on which GPUs they compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.backends.protocol import GpuProcess
from agent.catalogue import BY_NAME
from agent.commands.record.followed_command import bury
from agent.model import EMPTY_FRAME, Frame, Framer, Gpu, Instant, Node, Reading, Series

LOOK_SECONDS = 15.0
"""Seconds between two looks through /proc, which has thousands of processes on a large node."""
FIRST_SECONDS = 3.0
"""The same in the beginning, in which a command starts most of its processes."""
BEGINNING_SECONDS = 30.0

_ON_GPU = BY_NAME["coldplate_gpu_recorded_processes"]
_COUNT, _CPU, _MEMORY = (
    Series(BY_NAME[f"coldplate_recorded_{name}"], Node())
    for name in ("processes", "process_cpu_seconds_total", "process_resident_memory_bytes")
)
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Seen:
    """One process in /proc/PID/stat (proc(5)); times in clock ticks, memory in pages."""

    pid: int
    parent: int
    state: str
    started: int
    ticks: int
    pages: int


class CommandProcesses:
    """Follows the descendants of a process. `ours` gives those that are not the command's, such as our worker."""

    def __init__(
        self, root: int, ours: Callable[[], set[int]], on_gpus: Callable[[], Mapping[Gpu, Sequence[GpuProcess]]],
        procfs: Path = Path("/proc"),
    ) -> None:  # fmt: skip
        self._root, self._ours, self._on_gpus, self._procfs = root, ours, on_gpus, procfs
        self._own = os.getpid()
        self._next = self._began = 0.0
        self._used: dict[tuple[int, int], int] = {}
        """Clock ticks of the processes that were there at the last look, by id and start."""
        self._ended = 0
        """Those of processes that have ended since."""
        self._framer = Framer()
        self._frame = EMPTY_FRAME

    def frame(self, now: Instant) -> Frame:
        """What is known of them; looks through /proc when it is time."""
        if not self._began:
            self._began = now.mono
        if now.mono >= self._next:
            early = now.mono - self._began < BEGINNING_SECONDS
            self._next = now.mono + (FIRST_SECONDS if early else LOOK_SECONDS)
            self._frame = self._framer.frame(self._readings())
        return self._frame

    def _readings(self) -> list[Reading]:
        mine = self._descendants()
        bury([each.pid for each in mine if each.state == "Z" and each.parent == self._own and each.pid != self._root])
        running = [each for each in mine if each.state != "Z"]
        before, self._used = self._used, {(each.pid, each.started): each.ticks for each in mine}
        self._ended += sum(ticks for process, ticks in before.items() if process not in self._used)
        readings = [
            Reading(_COUNT, len(running)),
            Reading(_CPU, (self._ended + sum(self._used.values())) / _TICK),
            Reading(_MEMORY, sum(each.pages for each in running) * _PAGE),
        ]
        pids = {each.pid for each in running}
        for gpu, processes in self._on_gpus().items():
            readings.append(Reading(Series(_ON_GPU, gpu), sum(each.pid in pids for each in processes)))
        return readings

    def _descendants(self) -> list[Seen]:
        """The command's processes and what they started, wherever it stands now; orphans are children of ours."""
        children: dict[int, list[Seen]] = {}
        for seen in self._all():
            children.setdefault(seen.parent, []).append(seen)
        ours = self._ours()
        found = [each for each in children.get(self._own, ()) if each.pid not in ours]
        for each in found:  # grows while it is gone through
            found += children.get(each.pid, ())
        return found

    def _all(self) -> list[Seen]:
        made = []
        for process in self._procfs.iterdir():
            if process.name.isdigit():
                try:
                    made.append(parse((process / "stat").read_bytes()))
                except (OSError, ValueError, IndexError):
                    continue  # it has ended meanwhile
        return made


def parse(data: bytes) -> Seen:
    """The content of /proc/PID/stat. Raises ValueError and IndexError."""
    head, _, tail = data.rpartition(b")")  # the name may hold parentheses
    fields = tail.split()
    ticks = int(fields[11]) + int(fields[12])
    return Seen(int(head.split(b"(")[0]), int(fields[1]), fields[0].decode(), int(fields[19]), ticks, int(fields[21]))
