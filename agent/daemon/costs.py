"""Costs of the agent by process and thread, and the governor that keeps its processor time within a budget."""

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
from agent.model import EMPTY_FRAME, LANES, Frame, Instant, Metric, Node, Reading, Series
from agent.sampler.overhead import OverheadGovernor
from agent.sampler.schedule import Settings, steps_of

PROCESS_CPU = BY_NAME["coldplate_process_cpu_seconds_total"]
PROCESS_MEMORY = BY_NAME["coldplate_process_resident_memory_bytes"]
THREAD_CPU = BY_NAME["coldplate_thread_cpu_seconds_total"]


@cache
def _series(metric: Metric, name: str) -> Series:
    """Return the series of a process or a thread."""
    return Series(metric, Node(), ((metric.labels[0], name),))


class CpuMeter:
    """Adds up processor time by name, so that the seconds of a name never fall when what has used them ends."""

    def __init__(self) -> None:
        self._running: dict[object, tuple[str, float]] = {}
        self._ended: dict[str, float] = {}

    def add_readings(self, readings: Mapping[object, tuple[str, float]]) -> dict[str, float]:
        """Note the name and seconds of each process or thread that runs; returns all seconds so far, by name.

        One that is not found has ended only if another one has its name: it may just not have been readable.
        """
        names = {name for name, _ in readings.values()}
        unseen = {key: reading for key, reading in self._running.items() if key not in readings}
        for name, seconds in unseen.values():
            if name in names:
                self._ended[name] = self._ended.get(name, 0.0) + seconds
        self._running = {**{key: reading for key, reading in unseen.items() if reading[0] not in names}, **readings}
        totals = dict(self._ended)
        for name, seconds in self._running.values():
            totals[name] = totals.get(name, 0.0) + seconds
        return totals


class OwnProcesses:
    """Reads what the agent's processes have used so far, and the memory that they have."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._tick = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._meter = CpuMeter()

    def read(self, pids: Mapping[str, int]) -> list[Reading]:
        """Return readings of each process that still exists; `pids` by role."""
        readings: dict[object, tuple[str, float]] = {}
        memory = []
        for role, pid in pids.items():
            try:
                stat = parse_stat((self._procfs / str(pid) / "stat").read_bytes())
                readings[role, pid] = role, stat.ticks / self._tick
                memory.append(Reading(_series(PROCESS_MEMORY, role), float(stat.pages * self._page)))
            except (OSError, ValueError, OverflowError):
                continue  # it ended since
        totals = self._meter.add_readings(readings)
        return [Reading(_series(PROCESS_CPU, role), totals[role]) for role, _ in readings.values()] + memory


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
        self._meter = CpuMeter()
        self._other = 0.0

    def read(self) -> list[Reading]:
        """Return the seconds of each name so far."""
        readings: dict[object, tuple[str, float]] = {}
        for thread in threading.enumerate():
            spent = None if thread.native_id is None else self._of_thread(thread.native_id)
            if spent is not None and not _NAMELESS.fullmatch(thread.name):
                readings[thread] = _NAMES.get(thread.name, thread.name), spent
        totals = self._meter.add_readings(readings)
        process = self._of_process(os.getpid())
        if process is not None:
            # Read a moment after the threads: what they used meanwhile must not count twice.
            self._other = max(process - sum(totals.values()), self._other)
            totals[OTHER] = self._other
        return [Reading(_series(THREAD_CPU, name), spent) for name, spent in totals.items()]


log = logging.getLogger("coldplate.overhead")


class Governing:
    """Belongs to the sampling thread. `cpu` gives the seconds of processor time of a process."""

    def __init__(self, cpu: Callable[[int], float | None] = cpu_of_process) -> None:
        self._cpu = cpu
        self._meter = CpuMeter()
        self._steps: tuple[Settings, ...] = (Settings(),)
        self._governor = OverheadGovernor(inf, (0.0,))
        self._own = OwnSeries()
        self._frame = EMPTY_FRAME
        self._logged_state = "normal"

    def configure(self, settings: Settings) -> Settings:
        """Take over the configured settings; returns those of the step that is in force."""
        self._steps = steps_of(settings)
        self._governor.change(settings.cpu_budget, [step.cold for step in self._steps])
        self._frame = self._own.frame(self._readings())
        return self._steps[self._governor.step]

    def step(self, at: float, pids: Mapping[str, int]) -> Settings | None:
        """Take in what the processes have used by a monotonic second; returns the settings if they are to change."""
        if not self._governor.is_due(at):
            return None
        used = {(role, pid): self._cpu(pid) for role, pid in pids.items()}
        totals = self._meter.add_readings({key: (key[0], spent) for key, spent in used.items() if spent is not None})
        changed = self._governor.observe(at, sum(totals.values()))
        self._frame = self._own.frame(self._readings())
        self._log_state()
        return self._steps[self._governor.step] if changed else None

    def frame(self, _now: Instant) -> Frame:
        """Return how it stood at the last look, on the page."""
        return self._frame

    def _readings(self) -> Iterator[OwnReading]:
        governor = self._governor
        if governor.load is not None:
            yield OwnReading("coldplate_overhead_cpu_ratio", governor.load)
        if governor.budget < inf:
            yield OwnReading("coldplate_overhead_cpu_budget_ratio", governor.budget)
            yield OwnReading("coldplate_overhead_info", 1, (("state", governor.state),))
            now, configured = self._steps[governor.step], self._steps[0]
            for lane in LANES:
                stretch = now.period(lane) / configured.period(lane)
                yield OwnReading("coldplate_sampling_slowdown_ratio", stretch, (("sampling_lane", lane.value),))

    def _log_state(self) -> None:
        """Log when the state changes; from `exhausted` only back to `normal`, since it may come and go."""
        governor, state = self._governor, self._governor.state
        if state == self._logged_state or (self._logged_state == "exhausted" and state == "slowed"):
            return
        self._logged_state = state
        now = self._steps[governor.step]
        periods = {lane.value: f"{now.period(lane):g}s" for lane in LANES}
        extra = {"facts": {"cpu": f"{governor.load or 0.0:.3f}", "budget": f"{governor.budget:g}", **periods}}
        if state == "normal":
            log.info("sampling restored: all lanes at their configured period", extra=extra)
        elif state == "slowed":
            log.warning("lanes are read less often, so that the agent stays within overhead.cpu_cores", extra=extra)
        else:
            log.warning("CPU budget exceeded: sampling is at its slowest", extra=extra)
