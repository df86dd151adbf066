"""The daemon: builds the parts from the configuration, runs them, and obeys signals.

SIGHUP reads the configuration again; SIGTERM and SIGINT end it. The main thread does nothing but wait for signals, look
after the other threads and speak to systemd. It feeds the watchdog only while no thread that matters is in trouble.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import platform
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

from agent import __version__
from agent.config.schema import Config
from agent.daemon.alert_store import Keeper
from agent.daemon.reloading import Reloads
from agent.daemon.rule_loop import Judge
from agent.daemon.sampling import Engine
from agent.daemon.systemd import Notifier
from agent.daemon.vitals import Vitals
from agent.lib import logs
from agent.lib.clock import clock
from agent.lib.durable import clear_unfinished
from agent.lib.statefiles import StateFiles
from agent.lib.threads import KeptThread, Threads
from agent.model import Lane, Outcome, Snapshot
from agent.rack.watch import Options as RackOptions
from agent.sampler.health import OwnFacts
from agent.wiring.command_line import Options
from agent.wiring.rack import load_rack, make_watch
from agent.wiring.rules import Alerting, Receivers, load_alerting, node_name, source_of, target_labels
from agent.wiring.sources import build_engine, check, faults_to_come, load_settings, parse_address, state_file
from alerts import packs
from alerts.garbage import collect_what_stayed
from exporters.server import HttpServer
from exporters.site import Site, View

log = logging.getLogger("coldplate")

T = TypeVar("T")

SWITCH = 0.0001
"""Seconds after which a thread that computes lets another one in.

Every system call of the thread that serves gives the interpreter away, and while rules are computed it comes back
only after this long. A client takes some six of them: with 0.5 ms, 5,000 rules let the queue of clients grow.
"""
HURRY = 0.00001
"""The same while clients come faster than they are taken: a thread that computes is held up more, for them alone."""
PATIENCE = 30.0
"""Seconds that the sampling loop may stand still before it is in trouble."""
LOOK = 1.0
"""Seconds between two looks at the threads."""
THOROUGH = 50
"""Reloads after which the garbage collector looks through everything once."""
CLOSING = 2.0
"""Seconds that the state files have at the end, and a reload that is under way."""


class Daemon:
    """One run of `coldplate run`. `read_config` reads the file and lays the command line over it."""

    def __init__(self, options: Options, read_config: Callable[[], Config], notifier: Notifier) -> None:
        self._options = options
        self._read_config = read_config
        self._notifier = notifier
        self.config = read_config()
        self._booted = self.config
        self._selection = check(self.config)
        self._wanted: set[str] = set()
        self._announced = False
        # A pipe and not an Event: a handler that interrupts the main thread inside Event.wait would wait for itself.
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._threads = Threads(time.monotonic)
        self._files = StateFiles(self._threads)
        self._vitals = Vitals()
        self._reloads = Reloads(self._reread, clock, notifier, self._threads)
        self._reread_count = 0
        self._spared: dict[str, str] = {}
        self._receivers = Receivers(clock, self._threads)
        self.rack = make_watch(
            self.config,
            self._rack_options(self.config),
            clock,
            self._threads,
            self._state_path("rack.state"),
            self._files.put,
        )
        self._alerting = load_alerting(self.config, options.folder, self._receivers)
        self.judge = self._make_judge(self._alerting)
        self.engine: Engine = build_engine(
            self.config, options, clock, self._facts, self._snapshot_taken, self._files.put, self._threads
        )
        site = Site(self._view())
        web = self.config.web
        self.server = HttpServer(
            [parse_address(each) for each in web.listen],
            site,
            clock=time.monotonic,
            work=site.work,
            press=lambda pressed: sys.setswitchinterval(HURRY if pressed else SWITCH),
            threads=self._threads,
            max_connections=web.max_connections,
        )

    def run(self) -> int:
        """Serve until told to stop; the exit status. Raises BindError."""
        self._on_signals()
        scenario = self._options.scenario_name
        if scenario is not None:
            log.warning("SYNTHETIC devices: nothing they show is real", extra={"facts": {"scenario": scenario}})
            for fault in faults_to_come(scenario, clock().wall):
                log.info("to come: %s", fault)
        if self.config.rules.files and self._state_path() is None:
            log.info("no state directory: alerts will start anew after a restart")
        self.server.start()
        sampler = self._threads.begin("sampler", self.engine.run, patience=PATIENCE, vital=True)
        self._reloads.start()
        self.rack.start()
        self.judge.start()
        # A scrape that comes while a tick is being worked on waits for the interpreter this long, not 5 ms.
        sys.setswitchinterval(SWITCH)
        gc.collect()
        gc.freeze()
        while "stop" not in self._wanted:
            self._wait(LOOK if self._announced else 0.05)
            if "reload" in self._wanted:
                self._wanted.discard("reload")
                self._reloads.ask()
            sampler.beats = self.engine.heartbeat
            self._threads.tend()
            snapshot = self.engine.latest
            if snapshot is not None:
                self._report(snapshot)
        self._shut_down(sampler)
        return 0

    def _report(self, snapshot: Snapshot) -> None:
        """Tell systemd, and the first time everybody, what is there."""
        if not self._announced:
            self._announced = True
            self._announce(snapshot)
        if not self._threads.trouble():
            self._notifier.alive(self.engine.heartbeat, self._status(snapshot))

    def _reread(self) -> None:
        """Read the configuration and put it in force. Raises ConfigError, and then nothing has changed."""
        config = self._read_config()
        selection = check(config)
        alerting = load_alerting(config, self._options.folder, self._receivers, self._alerting.rules)
        settings, rack = load_settings(config), self._rack_options(config)
        for key in _needs_restart(self._booted, config):
            log.warning("%s differs from what the agent was started with: takes effect at the next restart", key)
        self.config = config
        self._selection = selection
        self.engine.reconfigure(settings)
        self.rack.reconfigure(rack)
        self.judge.reconfigure(alerting)
        self._alerting = alerting
        self._reread_count += 1
        if self._reread_count % THOROUGH == 0:
            collect_what_stayed()

    def _want(self, what: str) -> None:
        """Ask the main thread for something; for signal handlers and other threads."""
        self._wanted.add(what)
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
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
        log.info("stopping")
        self._notifier.send(STOPPING=1)
        self._reloads.stop(CLOSING)
        self.engine.stop()
        sampler.join(5.0)
        self.judge.stop()
        self.rack.stop()
        self.server.stop()
        self._files.stop(CLOSING)
        self.engine.close(time.sleep)
        log.info("stopped")

    def _facts(self) -> OwnFacts:
        return OwnFacts(
            version=__version__,
            python=platform.python_version(),
            scenario=self._options.scenario_name,
            reload_ok=self._reloads.last.good,
            reload_at=self._reloads.last.at,
            judgement=self.judge.readings,
            rack=self._spare("adding up the rack", lambda: self.rack.readings(clock()), ()),
            vitals=self._vitals.readings(self._threads.states(), self._files.states()),
        )

    def _spare(self, part: str, work: Callable[[], T], otherwise: T) -> T:
        """What a part gives. One that fails costs that, and not the snapshot; it is told once."""
        try:
            return work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._spared.get(part) != text:
                self._spared[part] = text
                log.exception("%s failed", part)
            return otherwise

    def _snapshot_taken(self) -> None:
        """For the sampling thread: returns at once."""
        latest = self.engine.latest
        if latest is not None:
            self._spare("noting the node's power for the rack", lambda: self.rack.observe(latest), None)
        self.judge.snapshot_taken()

    def _rack_options(self, config: Config) -> RackOptions:
        return load_rack(config, self._options.folder, load_settings(config).patience(Lane.FAST))

    def _make_judge(self, alerting: Alerting) -> Judge:
        path = self._state_path()
        if path is not None:
            clear_unfinished(path.parent)
        keeper = None if path is None else Keeper(path.parent, source_of(self.config), self._files)
        return Judge(
            alerting,
            target_labels(self.config),
            clock,
            lambda: self.engine.latest,
            self._sampling_period,
            keeper,
            self.rack.foreign,
            self._threads,
        )

    def _state_path(self, name: str = "alerts.state") -> Path | None:
        """Where alerts, or breakers, are remembered. A drill writes nothing where the node's own agent does."""
        if self._options.scenario_name is not None and self.config.state_dir is None:
            return None
        return state_file(self.config, name)

    def _sampling_period(self) -> float:
        return self.engine.sampler.settings.fast

    def _view(self) -> View:
        return View(
            node=_title(self.config),
            version=__version__,
            synthetic=self._options.scenario_name,
            telemetry_path=self.config.web.telemetry_path,
            latest=self._latest,
            rules=self.judge.reports,
            rack=self.rack.report,
            readiness=self.readiness,
            health=self.health,
            reload=self._reloads.ask if self.config.web.enable_lifecycle else None,
            clock=time.monotonic,
            runbooks=packs.runbooks(),
            whole=lambda: self.engine.latest,
        )

    def _latest(self) -> Snapshot | None:
        snapshot = self.engine.latest
        return None if snapshot is None else self._selection.apply(snapshot)

    def health(self) -> tuple[bool, str]:
        """Whether all threads do their work without which the process is of no use, and what is wrong."""
        trouble = self._threads.trouble()
        return not trouble, trouble or "healthy"

    def readiness(self) -> tuple[bool, str]:
        """Whether the last sample is fresh, and a sentence about it."""
        snapshot = self.engine.latest
        if snapshot is None:
            return False, "no sample yet"
        settings = self.engine.sampler.settings
        age = clock().mono - snapshot.at.mono
        if age > settings.patience(Lane.FAST):
            return False, f"the last sample is {age:.1f} s old"
        for report in snapshot.reports:
            if report.backend == self.engine.devices and report.outcome is Outcome.FAILED:
                return False, f"the devices cannot be read: {report.detail}"
        return True, f"the last sample is {max(age, 0.0):.1f} s old"

    def _announce(self, snapshot: Snapshot) -> None:
        """Say what is sampled and where it is served, and tell systemd that it may start what depends on it."""
        ports = {reading.entity for reading in snapshot.readings if reading.metric.name.startswith("coldplate_infini")}
        for report in snapshot.reports:
            facts = {"outcome": report.outcome.value, **({"detail": report.detail} if report.detail else {})}
            log.info("source %s", report.backend, extra={"facts": facts})
        log.info("sampling %d series, %d InfiniBand ports", len(snapshot.readings), len(ports))
        for host, port in self.server.addresses:
            shown = "localhost" if host in ("::", "0.0.0.0") else f"[{host}]" if ":" in host else host  # noqa: S104
            log.info("serving", extra={"facts": {"url": f"http://{shown}:{port}{self.config.web.telemetry_path}"}})
        self._notifier.send(READY=1, STATUS=self._status(snapshot))

    def _status(self, snapshot: Snapshot) -> str:
        gpus = len(self.engine.sampler.identities)
        kind = " synthetic" if self._options.scenario_name is not None else ""
        return f"{gpus}{kind} GPUs, {len(snapshot.readings)} series"


def _title(config: Config) -> str:
    """Who this node is, for people."""
    node = config.node
    rack = node.rack or config.rack.name
    parts = [node_name(config), f"rack {rack}" if rack else "", node.cluster or ""]
    return ", ".join(part for part in parts if part)


def _needs_restart(old: Config, new: Config) -> list[str]:
    """Keys that a reload cannot change: they shape processes, sockets and files."""
    live = {"backends": {"expected_gpus", "estimate"}, "jobs": set(), "web": set(), "node": {"rack"}}
    changed = []
    for section, free in live.items():
        before, after = getattr(old, section), getattr(new, section)
        changed += [
            f"{section}.{key}"
            for key in before.__struct_fields__
            if key not in free and getattr(before, key) != getattr(after, key)
        ]
    if old.state_dir != new.state_dir:
        changed.append("state_dir")
    return changed


def run(options: Options, read_config: Callable[[], Config]) -> int:
    """`coldplate run`: the exit status. Raises ConfigError and BindError for mistakes of the user."""
    logs.set_up(options.log_level, options.log_format, sys.stderr)
    return Daemon(options, read_config, Notifier(os.environ, os.getpid())).run()
