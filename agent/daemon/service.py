"""The daemon: starts the parts, handles signals, supervises the threads, and stops the parts.

SIGHUP reloads the configuration; SIGTERM and SIGINT stop the daemon. The main thread only waits for signals, supervises
the other threads and notifies systemd. It feeds the watchdog only while all vital threads are healthy.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from agent.daemon.flight_recorder import FlightRecorder
from agent.daemon.hub import Hub
from agent.daemon.reloading import Reloader
from agent.daemon.rule_manager import RuleManager
from agent.daemon.sampling import SamplingLoop
from agent.daemon.systemd import Notifier
from agent.lib.statefiles import StateFiles
from agent.lib.threads import KeptThread, Threads
from agent.model import Snapshot
from agent.rack.monitor import RackMonitor
from exporters.protection.passwords import PasswordChecks
from exporters.server import HttpServer

if TYPE_CHECKING:
    from exporters.protection.web_watch import WebWatch

log = logging.getLogger("coldplate")

SWITCH_SECONDS = 0.0001
"""Seconds after which a thread that computes lets another one run.

Every system call of the serving thread releases the interpreter's lock, and while rules are evaluated it gets it back
only after this long. A client takes some six such calls: with 0.5 ms, the queue of clients grew beside many rules.
"""
HURRY_SECONDS = 0.00001
"""The same while clients arrive faster than they are served: computing threads are interrupted more often for them."""
PATIENCE_SECONDS = 30.0
"""Seconds for which the sampling loop may make no progress before it is in trouble."""
LOOK_SECONDS = 2.0
"""Seconds between two checks of the threads."""
CLOSING_SECONDS = 2.0
"""Seconds that the state files have at the end, and a reload under way."""
GARBAGE = 20_000
"""New objects after which they are scanned for garbage; Python's 700 come in less than a tenth of a second, in use."""


def hurry(pressed: bool) -> None:
    """Let the serving thread run sooner, or as usual."""
    sys.setswitchinterval(HURRY_SECONDS if pressed else SWITCH_SECONDS)


class Pushing(Protocol):
    """The pushes to other servers."""

    def start(self) -> None: ...

    def stop(self, seconds: float) -> None:
        """Send what can be sent in so many seconds, and end."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What the service starts and ends. `synthetic` says whether the devices are synthetic."""

    hub: Hub
    threads: Threads
    files: StateFiles
    sampling: SamplingLoop
    rack: RackMonitor
    rules: RuleManager
    reloads: Reloader
    server: HttpServer
    notifier: Notifier
    telemetry_path: str
    synthetic: bool
    flight: FlightRecorder | None = None
    watch: WebWatch | None = None
    passwords: PasswordChecks | None = None
    pushes: Pushing | None = None
    shown: Callable[[], Snapshot | None] = lambda: None
    """What the page of metrics shows of the last snapshot."""


class Service:
    """One run of `coldplate run`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._wanted: set[str] = set()
        self._announced = False
        # A pipe and not an Event: a handler that interrupts the main thread inside Event.wait would wait for itself.
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Serve until told to stop; returns the exit status. Raises BindError."""
        self._on_signals()
        parts = self._parts
        parts.server.start()
        if parts.watch is not None and parts.passwords is not None:
            parts.watch.start(parts.threads)
            parts.passwords.start(parts.threads)
        sampler = parts.threads.begin("sampler", parts.sampling.run, patience=PATIENCE_SECONDS, vital=True)
        parts.reloads.start()
        parts.rack.start()
        parts.rules.start()
        if parts.flight is not None:
            parts.flight.start()
        if parts.pushes is not None:
            parts.pushes.start()
        # A scrape that arrives during a tick waits this long for the interpreter, not 5 ms.
        hurry(False)
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE)
        while "stop" not in self._wanted:
            self._wait(LOOK_SECONDS if self._announced else 0.05)
            if "reload" in self._wanted:
                self._wanted.discard("reload")
                parts.reloads.ask()
            sampler.beats = parts.sampling.heartbeat
            parts.threads.tend()
            if parts.hub.latest is not None:
                self._report(parts.hub.latest)
        self._shut_down(sampler)
        return 0

    def _report(self, snapshot: Snapshot) -> None:
        """Tell systemd what is there, and the first time the log, too."""
        if not self._announced:
            self._announced = True
            self._announce(snapshot)
        if not self._parts.threads.trouble():
            self._parts.notifier.alive(self._parts.sampling.heartbeat, self._status(snapshot))

    def _want(self, what: str) -> None:
        """Ask the main thread for something; for signal handlers."""
        self._wanted.add(what)
        with contextlib.suppress(BlockingIOError):  # the pipe is already full of wake-ups
            os.write(self._wake_in, b".")

    def _wait(self, seconds: float) -> None:
        waiting = select.poll()
        waiting.register(self._wake_out, select.POLLIN)
        if waiting.poll(seconds * 1000):
            os.read(self._wake_out, 4096)

    def _on_signals(self) -> None:
        def ask(what: str) -> Callable[[int, FrameType | None], None]:
            def handler(_signal: int, _frame: FrameType | None) -> None:
                self._want(what)

            return handler

        signal.signal(signal.SIGTERM, ask("stop"))
        signal.signal(signal.SIGINT, ask("stop"))
        signal.signal(signal.SIGHUP, ask("reload"))

    def _shut_down(self, sampler: KeptThread) -> None:
        parts = self._parts
        log.info("stopping")
        parts.notifier.send(STOPPING=1)
        parts.reloads.stop(CLOSING_SECONDS)
        parts.sampling.stop()
        sampler.join(5.0)
        parts.rules.stop()
        if parts.pushes is not None:
            parts.pushes.stop(CLOSING_SECONDS)
        if parts.flight is not None:
            parts.flight.stop(CLOSING_SECONDS)
        parts.rack.stop()
        parts.server.stop()
        if parts.watch is not None and parts.passwords is not None:
            parts.watch.stop(CLOSING_SECONDS)
            parts.passwords.stop(CLOSING_SECONDS)
        parts.files.stop(CLOSING_SECONDS)
        parts.sampling.close(time.sleep)
        log.info("stopped")

    def _announce(self, snapshot: Snapshot) -> None:
        """Log what is sampled and where it is served, and tell systemd that it may start what depends on it."""
        ports = {reading.entity for reading in snapshot if reading.metric.name.startswith("coldplate_infini")}
        for report in snapshot.reports:
            facts = {"outcome": report.outcome.value, **({"detail": report.detail} if report.detail else {})}
            log.info("source %s", report.backend, extra={"facts": facts})
        page = len(self._parts.shown() or ())
        what = "sampling %d series, %d of them on the page of metrics (metrics.profile), %d InfiniBand ports"
        log.info(what, len(snapshot), page, len(ports))
        watch = self._parts.watch
        scheme = "http" if watch is None or watch.gate.terms.context is None else "https"
        for host, port in self._parts.server.addresses:
            shown = "localhost" if host in ("::", "0.0.0.0") else f"[{host}]" if ":" in host else host  # noqa: S104
            log.info("serving", extra={"facts": {"url": f"{scheme}://{shown}:{port}{self._parts.telemetry_path}"}})
        self._parts.notifier.send(READY=1, STATUS=self._status(snapshot))

    def _status(self, snapshot: Snapshot) -> str:
        gpus = len(self._parts.sampling.sampler.identities)
        kind = " synthetic" if self._parts.synthetic else ""
        return f"{gpus}{kind} GPUs, {len(snapshot)} series"
