"""The sampling loop: requests every source at each tick, waits for those that answer, and publishes a snapshot.

It belongs to the top-level packages, because it reads the clock and owns the worker process. It runs in one thread.
"""

import dataclasses
import logging
import math
import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from agent.backends.protocol import BackendProtocol, ChannelError, LaneSample
from agent.daemon.costs import Governing, OwnProcesses, ThreadCosts
from agent.daemon.hub import Hub, Isolation
from agent.daemon.pausing import PauseAnswer, PauseWatch
from agent.lib.threads import KeptThread, Threads
from agent.lib.wakeups import WakePipe
from agent.lib.wording import utc
from agent.model import EMPTY_FRAME, Frame, Instant, Lane, Outcome, Snapshot
from agent.sampler.backend_runner import Runner
from agent.sampler.health import LoopFacts
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Schedule, Settings
from agent.worker.supervisor import Supervisor
from agent.worker.worker_messages import Hello, Message, Refusal

log = logging.getLogger("coldplate.sampler")

PATIENT_SHARE = 0.8
"""Share of a tick for which the loop waits for answers; later ones are in the next snapshot."""
COMPUTED_SECONDS = 1.0
"""Seconds between two snapshots whose sums, statistics and states are new; readings are new in each."""
HEARTBEAT_SECONDS = 1.0
"""Most seconds between two rounds of the loop."""
PROMPT_SECONDS = 0.2
"""A backend whose last read took longer than this many seconds is not waited for."""
GATHER_SECONDS = 0.005
"""Seconds for which answers are collected before they are read: one wake-up for all GPUs, not one for each."""
LATE_SECONDS = 60.0
"""Most age in seconds of an XID error when the worker reports it; both use the same clock."""
ANSWER_SECONDS = 30.0
"""Most seconds that a single sample waits for sources that are slow to answer."""
OPENING_SECONDS = 5.0
"""Seconds that the first snapshot waits for the devices to be opened."""
STALL_TIMEOUT_SECONDS = 30.0
"""Seconds for which the loop may make no progress before its thread is in trouble."""
LAST_TICK_SECONDS = 5.0
"""Seconds that a tick under way has to end when the agent stops."""

STANDSTILL_SECONDS = 10.0
"""Seconds without a sample from which the log says so: a busy node delays a tick by less."""

Clock = Callable[[], Instant]


class FrameProvider(Protocol):
    """A part of the agent that has readings for each snapshot, and that the loop need not wait for."""

    def frame(self, now: Instant) -> Frame:
        """Return the part's readings at this moment. Called in the sampling thread; must return at once."""


class SamplingLoop:
    """Runs the sources, makes the snapshots, and publishes them in the hub. The log names each provider by its key."""

    def __init__(
        self,
        sampler: Sampler,
        supervisor: Supervisor,
        backends: Sequence[BackendProtocol],
        clock: Clock,
        *,
        hub: Hub,
        providers: Mapping[str, FrameProvider] | None = None,
        threads: Threads | None = None,
        pause: PauseWatch | None = None,
        governing: Governing | None = None,
    ) -> None:
        threads = threads or Threads()
        self._clock = clock
        self._hub = hub
        self._threads = threads
        self._thread: KeptThread | None = None
        self._providers = list((providers or {}).items())
        self._isolation = Isolation()
        self._pause = pause
        self._paused_until: float | None = None
        self.supervisor = supervisor
        self.sampler = sampler
        self._wake_pipe = WakePipe()
        self._runners = [Runner(backend, clock, self._wake_pipe.wake, threads) for backend in backends]
        self._own = OwnProcesses()
        self._thread_costs = ThreadCosts()
        self._governing = governing
        if governing is not None:
            governing.configure(sampler.settings)
        self._durations: dict[str, float] = {}
        self._pending: set[str] = set()
        self._awaited: set[str] = set()
        """Backends with a source that has not answered yet: they are read at each tick until it does."""
        self._reconfigured: Settings | None = None
        self._computed_at = -math.inf
        self._clock_offset: float | None = None
        """Seconds by which the wall clock was ahead of the monotonic one at the last tick."""
        self._stopping = threading.Event()
        sampler.paces = {backend.name: backend.shortest for backend in backends}
        self.schedule = Schedule(sampler.settings, clock().mono)
        hub.period = sampler.settings.fast
        self.heartbeat = 0
        """Grows as long as the loop runs, even between two ticks that are far apart."""

    def start(self) -> None:
        self._thread = self._threads.begin("sampler", self.run, stall_timeout=STALL_TIMEOUT_SECONDS, vital=True)

    def run(self) -> None:
        self._begin()
        while not self._stopping.is_set():
            self._pump(self.schedule.next_tick, lambda: False)
            if not self._stopping.is_set():
                self.tick()

    def once(self) -> Snapshot:
        """Return a snapshot of every lane, after two ticks, as rates over an interval need both its ends, or after as
        many as it takes until sources that are slow have answered."""
        self._begin()
        self.tick()
        last = self.schedule.next_tick + ANSWER_SECONDS
        while True:
            self._pump(self.schedule.next_tick, lambda: False)
            self._computed_at = -math.inf
            self.tick()
            if not self._awaited or self.schedule.next_tick > last:
                break
        assert self._hub.latest is not None
        return self._hub.latest

    def add_provider(self, purpose: str, provider: FrameProvider) -> None:
        """Add a part whose frame goes into each snapshot; before `run`. `what` says what it does, for the log."""
        self._providers.append((purpose, provider))

    def glance(self, until: float) -> Snapshot:
        """Return one snapshot of every lane, as soon as all have answered; what there is by the monotonic second
        `until`.

        Each tick polls the sources that have answered, so that one hung source does not make others stale. Rates over
        an interval may be missing.
        """
        self.supervisor.step(self._clock().mono)
        self.supervisor.ping(self._clock().mono)
        self._pump(until, lambda: not self.supervisor.opening)
        self.schedule = Schedule(self.sampler.settings, self._clock().mono)
        while True:
            self._request(self._clock().mono)
            self._pump(min(until, self.schedule.next_tick), self.has_everything)
            if self.has_everything() or self._clock().mono >= until:
                break
        self._publish(())
        assert self._hub.latest is not None
        return self._hub.latest

    def _request(self, now: float) -> tuple[Lane, ...]:
        """Ask all sources for the lanes that are due, and return these."""
        lanes = self.schedule.take_due(now)
        self._pending.clear()
        self._ask_devices(lanes, now)
        for runner in self._runners:
            name = runner.backend.name
            due = tuple(Lane) if name in self._awaited else lanes
            if runner.ask(due, now) and self._durations.get(name, 0.0) <= PROMPT_SECONDS:
                self._pending.add(name)
        return lanes

    def has_everything(self) -> bool:
        """Return True if every device and every backend has answered its first request."""
        return self.sampler.all_devices_answered and not any(runner.busy for runner in self._runners)

    def stop(self) -> None:
        """Have `run` return soon, and wait for the thread that `start` began. For any other thread."""
        self._stopping.set()
        self._wake_pipe.wake()
        if self._thread is not None:
            self._thread.join(LAST_TICK_SECONDS)

    def reconfigure(self, settings: Settings) -> None:
        """Use other settings from the next tick on. For any thread."""
        self._reconfigured = settings
        self._wake_pipe.wake()

    def close(self, wait: Callable[[float], None]) -> None:
        """End the worker and the backends' threads. After `run` has returned."""
        self.supervisor.stop(wait)
        for runner in self._runners:
            runner.stop(0.5)
        self._wake_pipe.close()

    def tick(self) -> None:
        """Run one tick of the fast lane, and of those lanes that are due with it."""
        now = self._clock()
        late = now.mono - self.schedule.next_tick
        self._log_standstill(now, late)
        lanes = self._request(now.mono)
        settings = self.sampler.settings
        limit = min(settings.deadline, PATIENT_SHARE * settings.fast)
        if self._pending:
            self._yield_to_sources()
        self._pump(now.mono + limit, lambda: not self._pending)
        ended = self._clock().mono
        self.sampler.late(max(late, ended - now.mono - limit), ended)
        self._publish(lanes)
        self._govern(now.mono)

    def _log_standstill(self, now: Instant, late: float) -> None:
        """Log for how many seconds nothing was sampled, if it was long.

        The monotonic clock counts while the process is stopped, and not while the machine is suspended: then the wall
        clock alone moves (clock_gettime(2)), as it does when it is set. Neither shows
        whether the process was stopped or its previous tick took long.
        """
        before, self._clock_offset = self._clock_offset, now.wall - now.mono
        if late >= STANDSTILL_SECONDS:
            causes = "the process or its machine was stopped, or the previous tick took too long"
            log.warning("sampling stood still: no sample for %.0f s; %s", late, causes)
        elif before is not None and self._clock_offset - before >= STANDSTILL_SECONDS:
            seconds = self._clock_offset - before
            log.warning("wall clock jumped by %.0f s: the machine was suspended, or its clock was set", seconds)

    def _govern(self, now: float) -> None:
        if self._governing is None:
            return
        step = partial(self._governing.step, now, self._pids())
        settings: Settings | None = self._isolation.run("keeping the agent's budget", step, None)
        if settings is not None:
            self._follow(settings)

    def _begin(self) -> None:
        """Give the worker time to open its devices, so that the first page shows them, and start the grid then."""
        self._tend_worker(self._clock().mono)
        self._pump(self._clock().mono + OPENING_SECONDS, lambda: not self.supervisor.awaited)
        self.schedule = Schedule(self.sampler.settings, self._clock().mono)

    def _apply_settings(self) -> None:
        settings, self._reconfigured = self._reconfigured, None
        if settings is not None:
            self._follow(settings if self._governing is None else self._governing.configure(settings))

    def _follow(self, settings: Settings) -> None:
        self.sampler.reconfigure(settings)
        self.schedule.reconfigure(settings, self._clock().mono)
        self._hub.period = settings.fast

    def _ask_devices(self, lanes: Sequence[Lane], now: float) -> None:
        self._receive()
        self._tend_worker(now)
        if self.supervisor.ask(lanes, now):
            self._pending.update(self.sampler.expected(now))

    def _tend_worker(self, now: float) -> None:
        """Start or end the worker as its state requires, and record one that failed."""
        self._keep_pause(now)
        self.supervisor.step(now)
        ended, self.supervisor.ended = self.supervisor.ended, None
        if ended is not None and not self.supervisor.held:
            self.sampler.refused(ended.reason, ended.detail)

    def _keep_pause(self, now: float) -> None:
        """Release the driver while it is requested to be free, and open it again afterwards."""
        until, reason = (None if self._pause is None else self._pause.current) or (None, "")
        if until != self._paused_until:
            self._paused_until = until
            if until is None:
                self.supervisor.release(now)
            else:
                self.supervisor.hold(now)
                self.sampler.pause(f"{reason} until {utc(until)}")
        if until is not None and self._pause is not None:
            self._pause.confirm(PauseAnswer(until, self.supervisor.pid))

    def _publish(self, lanes: Sequence[Lane]) -> None:
        now = self._clock()
        if Lane.SLOW in lanes:
            self.sampler.take_own(now.mono, [*self._own.read(self._pids()), *self._thread_costs.read()])
        snapshot = None
        if now.mono - self._computed_at < COMPUTED_SECONDS - self.sampler.settings.fast / 2:
            snapshot = self.sampler.refreshed(now)
        if snapshot is None:
            snapshot = self.sampler.snapshot(now, self._own_facts(), self._provider_frames(now))
            self._computed_at = now.mono
        self._hub.publish(snapshot)

    def _provider_frames(self, now: Instant) -> list[Frame]:
        run = self._isolation.run
        return [run(purpose, partial(provider.frame, now), EMPTY_FRAME) for purpose, provider in self._providers]

    def _own_facts(self) -> LoopFacts:
        flights = {runner.backend.name: flight for runner in self._runners if (flight := runner.flight) is not None}
        supervisor = self.supervisor
        absent = supervisor.held or (supervisor.refusal is not None and supervisor.refusal.absent)
        return LoopFacts(
            self.schedule.ticks,
            self.schedule.missed,
            worker_up=None if absent else supervisor.running,
            worker_restarts=supervisor.restarts,
            worker_garbage=supervisor.garbage,
            paused_until=self._paused_until,
            flights=flights,
        )

    def _pids(self) -> Mapping[str, int]:
        pids = {"main": os.getpid()}
        if self.supervisor.pid is not None:
            pids["worker"] = self.supervisor.pid
        return pids

    def _pump(self, until: float, is_complete: Callable[[], bool]) -> None:
        """Take in what comes until a monotonic second, or until `done`."""
        while not self._stopping.is_set() and not is_complete():
            remaining = until - self._clock().mono
            if remaining <= 0:
                return
            self.heartbeat += 1
            if self._thread is not None:
                self._thread.beat()
            self._wait(min(remaining, HEARTBEAT_SECONDS))
            if self._reconfigured is not None:
                self._apply_settings()
                until = min(until, self.schedule.next_tick)
            self._receive()
            self._collect()
            if self._pending:
                self._yield_to_sources()
            else:
                self._tend_worker(self._clock().mono)

    def _yield_to_sources(self) -> None:
        select.select((), (), (), GATHER_SECONDS)

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake_pipe, select.POLLIN)
        descriptor = self.supervisor.descriptor
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
        for ready, event in poll.poll(seconds * 1000):
            if ready == self._wake_pipe.fileno():
                self._wake_pipe.drain()
            elif event & select.POLLHUP:
                # Until the worker's end is collected this descriptor ends every wait at once, and a process takes a
                # moment between closing its pipe and being gone.
                self._yield_to_sources()

    def _collect(self) -> None:
        for runner in self._runners:
            for read in runner.collect_reads():
                self._durations[read.backend] = read.duration
                self.sampler.take_read(read)
                (self._awaited.add if read.sample.awaited else self._awaited.discard)(read.backend)
            if not runner.busy:
                self._pending.discard(runner.backend.name)

    def _receive(self) -> None:
        for message in self.supervisor.receive(self._clock().mono):
            self._apply_message(message)

    def _apply_message(self, message: Message) -> None:
        if isinstance(message, LaneSample):
            if self.sampler.take_lane(message):
                self.schedule.hasten(self._clock().mono)
        elif isinstance(message, ChannelError):
            self.sampler.take_error(message)
        elif isinstance(message, Hello):
            self.sampler.enlist(message.channels, message.unidentified, self._clock().mono)
        elif isinstance(message, Refusal):
            outcome = Outcome.ABSENT if message.absent else Outcome.FAILED
            self.sampler.refused(message.reason, message.detail, outcome)
        else:
            wall = self._clock().wall
            self.sampler.take_xids(
                [dataclasses.replace(xid, wall=min(max(xid.wall, wall - LATE_SECONDS), wall)) for xid in message]
            )
        if isinstance(message, (LaneSample, ChannelError)) and message.lane is Lane.FAST:
            self._pending.discard(message.channel)
