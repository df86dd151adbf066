"""Costs of the agent: processor time and memory by process, processor time by thread, and the governor that keeps it
within a budget."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import inf
from pathlib import Path

from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.clock import cpu_of_process, cpu_of_thread
from agent.lib.proc_stat import parse_stat
from agent.model import EMPTY_FRAME, Frame, Instant, Lane, Metric, Node, Reading, Series
from agent.sampler.overhead import OverheadFacts, OverheadGovernor
from agent.sampler.schedule import Settings, steps_of

PROCESS_CPU = BY_NAME["coldplate_process_cpu_seconds_total"]
PROCESS_MEMORY = BY_NAME["coldplate_process_resident_memory_bytes"]
THREAD_CPU = BY_NAME["coldplate_thread_cpu_seconds_total"]


@cache
def _series(metric: Metric, name: str) -> Series:
    """Return the series of a process or a thread."""
    return Series(metric, Node(), ((metric.labels[0], name),))


class CpuMeter:
    """Adds up the seconds of the processes that follow each other in a role, so that its seconds never fall."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[int, float]] = {}
        """By role: its process, and that process's seconds when they were last seen."""
        self._ended: dict[str, float] = {}

    def add(self, role: str, pid: int, seconds: float) -> float:
        """Note what the role's present process has used so far; returns the seconds of all that it has had."""
        known, last = self._running.get(role, (pid, 0.0))
        if known != pid:
            self._ended[role] = self._ended.get(role, 0.0) + last
        self._running[role] = (pid, seconds)
        return self._ended.get(role, 0.0) + seconds

    @property
    def total(self) -> float:
        """Seconds of all roles."""
        return sum(self._ended.values()) + sum(seconds for _, seconds in self._running.values())


class OwnProcesses:
    """Reads what the agent's processes have used so far, and the memory that they have."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._tick = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._meter = CpuMeter()

    def read(self, pids: Mapping[str, int]) -> list[Reading]:
        """Return readings of each process that still exists; `pids` by role."""
        rows = []
        for role, pid in pids.items():
            try:
                stat = parse_stat((self._procfs / str(pid) / "stat").read_bytes())
                seconds, resident = stat.ticks / self._tick, float(stat.pages * self._page)
            except (OSError, ValueError, OverflowError):
                continue  # it ended since
            rows.append(Reading(_series(PROCESS_CPU, role), self._meter.add(role, pid, seconds)))
            rows.append(Reading(_series(PROCESS_MEMORY, role), resident))
        return rows


OTHER = "other"
_NAMELESS = re.compile(r"Thread-\d+.*|Dummy-\d+")
_NAMES = {"MainThread": "main"}


class ThreadCosts:
    """Adds up the threads of one name, and what ended ones had used when they were last seen.

    Time that a thread used after that, and threads that started and ended between two looks, count as `other`: the
    process's time less the sum over the threads. The functions give the seconds of a thread or process by its id.
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

    def read(self) -> list[Reading]:
        """Return the seconds of each name so far."""
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
        return [Reading(_series(THREAD_CPU, name), spent) for name, spent in totals.items()]


log = logging.getLogger("coldplate.overhead")

_LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)


class Governing:
    """Belongs to the sampling thread. `cpu` gives the seconds of processor time of a process."""

    def __init__(self, cpu: Callable[[int], float | None] = cpu_of_process) -> None:
        self._cpu = cpu
        self._meter = CpuMeter()
        self._steps: tuple[Settings, ...] = (Settings(),)
        self._governor = OverheadGovernor(inf, (0.0,))
        self._own = OwnSeries()
        self._facts, self._frame = self._governor.facts, EMPTY_FRAME
        self._told = "full"

    def configure(self, settings: Settings) -> Settings:
        """Take over the configured settings; returns those of the step that is in force."""
        self._steps = steps_of(settings)
        self._governor.change(settings.cpu_budget, [each.cold for each in self._steps])
        self._show()
        return self._steps[self._governor.step]

    def step(self, at: float, pids: Mapping[str, int]) -> Settings | None:
        """Take in what the processes have used by a monotonic second; returns the settings if they are to change."""
        if not self._governor.is_due(at):
            return None
        for role, pid in pids.items():
            used = self._cpu(pid)
            if used is not None:
                self._meter.add(role, pid, used)
        changed = self._governor.observe(at, self._meter.total)
        self._show()
        self._tell(self._facts)
        return self._steps[self._governor.step] if changed else None

    def frame(self, _now: Instant) -> Frame:
        """Return how it stood at the last look, on the page."""
        return self._frame

    def _show(self) -> None:
        self._facts = self._governor.facts
        self._frame = self._own.frame(self._readings(self._facts))

    def _readings(self, facts: OverheadFacts) -> Iterator[OwnReading]:
        if facts.load is not None:
            yield OwnReading("coldplate_overhead_cpu_ratio", facts.load)
        if facts.budget < inf:
            yield OwnReading("coldplate_overhead_cpu_budget_ratio", facts.budget)
            yield OwnReading("coldplate_overhead_info", 1, (("state", facts.state),))
            now, configured = self._steps[facts.step], self._steps[0]
            for lane in _LANES:
                stretch = now.period(lane) / configured.period(lane)
                yield OwnReading("coldplate_sampling_stretch_ratio", stretch, (("lane", lane.value),))

    def _tell(self, facts: OverheadFacts) -> None:
        """Log when the state changes; back from `spent` counts only once it is `full`, since it may come and go."""
        if facts.state == self._told or (self._told == "spent" and facts.state == "slowed"):
            return
        self._told = facts.state
        now = self._steps[facts.step]
        periods = {lane.value: f"{now.period(lane):g}s" for lane in _LANES}
        shares = {"cpu": f"{facts.load or 0.0:.3f}", "budget": f"{facts.budget:g}"}
        state = {"facts": {**shares, **periods}}
        if facts.state == "full":
            log.info("sampling restored: all lanes at their configured period", extra=state)
        elif facts.state == "slowed":
            log.warning("lanes are read less often, so that the agent stays within overhead.cpu", extra=state)
        else:
            log.warning("CPU budget exceeded: sampling is at its slowest", extra=state)
