"""What each part of the main process costs: the processor time of its threads, by their names."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable

from agent.catalogue import BY_NAME
from agent.lib.clock import cpu_of_process, cpu_of_thread
from agent.model import Node, Reading, Series

CPU = BY_NAME["coldplate_thread_cpu_seconds_total"]
OTHER = "other"
_NAMELESS = re.compile(r"Thread-\d+.*|Dummy-\d+")
_NAMES = {"MainThread": "main"}


class ThreadCosts:
    """Adds up the threads of one name, and what ended ones had used when they were last seen.

    What they used after that, and threads that came and went between two looks, count as `other`: that is the
    process's time less all of theirs. The functions give the seconds of a thread or process by its id.
    """

    def __init__(
        self,
        of_thread: Callable[[int], float | None] = cpu_of_thread,
        of_process: Callable[[int], float | None] = cpu_of_process,
    ) -> None:
        self._of_thread, self._of_process = of_thread, of_process
        self._running: dict[object, tuple[str, float]] = {}
        self._ended: dict[str, float] = {}
        self._other = 0.0
        self._series: dict[str, Series] = {}

    def read(self) -> list[Reading]:
        """The seconds of each name so far."""
        found: dict[object, tuple[str, float]] = {}
        for thread in threading.enumerate():
            spent = None if thread.native_id is None else self._of_thread(thread.native_id)
            if spent is not None and not _NAMELESS.fullmatch(thread.name):
                found[thread] = _NAMES.get(thread.name, thread.name), spent
        for known, (name, spent) in self._running.items():
            if known not in found:
                self._ended[name] = self._ended.get(name, 0.0) + spent
        self._running = found
        totals = dict(self._ended)
        for name, spent in found.values():
            totals[name] = totals.get(name, 0.0) + spent
        process = self._of_process(os.getpid())
        if process is not None:
            # Read a moment after the threads: what they used meanwhile must not count twice.
            self._other = max(process - sum(totals.values()), self._other)
            totals[OTHER] = self._other
        return [Reading(self._series.get(name) or self._make(name), spent) for name, spent in totals.items()]

    def _make(self, name: str) -> Series:
        series = self._series[name] = Series(CPU, Node(), (("thread", name),))
        return series
