"""The daemon: starts the parts, handles signals, supervises the threads, and stops the parts.

The main thread only waits for signals, supervises the other threads and notifies systemd. It feeds the watchdog only
while all vital threads are healthy.
"""

import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from agent.daemon.hub import Hub
from agent.daemon.reloading import Notifier, Reloader
from agent.daemon.sampling import SamplingLoop
from agent.lib.threads import Part, Threads
from agent.lib.wakeups import SignalWaker
from agent.lib.wording import counted
from agent.model import Snapshot

log = logging.getLogger("coldplate")

SWITCH_SECONDS = 0.0001
"""Seconds after which a thread that computes lets another one run.

Every system call of the serving thread releases the interpreter's lock, and while rules are evaluated it gets it back
only after this long. A client takes some six such calls: with 0.5 ms, the queue of clients grew beside many rules.
"""
HURRY_SECONDS = 0.00001
"""The same while clients arrive faster than they are served: computing threads are interrupted more often for them."""
LOOK_SECONDS = 2.0
"""Seconds between two checks of the threads."""
SETTLED_SECONDS = 150.0
"""Seconds after the first snapshot until each lane has been read twice, the cold one every minute: the number of series
grows until then."""
GARBAGE = 20_000
"""New objects after which they are scanned for garbage; Python's 700 come in less than a tenth of a second, in use."""


def hurry(pressed: bool) -> None:
    """Let the serving thread run sooner, or as usual."""
    sys.setswitchinterval(HURRY_SECONDS if pressed else SWITCH_SECONDS)


class Service(Struct):
    """One run of `coldplate run`: starts `parts` in their order, and stops them in reverse.

    `page` is what the page of metrics shows of the last snapshot, and `urls` are its addresses.
    """

    parts: Sequence[Part]
    hub: Hub
    threads: Threads
    sampling: SamplingLoop
    reloads: Reloader
    notifier: Notifier
    page: Callable[[], Snapshot | None]
    urls: Callable[[], Sequence[str]]
    synthetic: bool
    announced_at: float | None = None
    """The monotonic second of the first snapshot that was reported."""
    is_settled: bool = False

    def run(self) -> int:
        """Serve until a signal stops the agent; return the exit status. Raises BindError."""
        waker = SignalWaker((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        for part in self.parts:
            part.start()
        # A scrape that arrives during a tick waits this long for the interpreter, not 5 ms.
        hurry(False)
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE)
        is_over = False
        while not is_over:
            came = waker.wait(LOOK_SECONDS if self.announced_at is not None else 0.05)
            is_over = signal.SIGTERM in came or signal.SIGINT in came
            if signal.SIGHUP in came:
                self.reloads.ask()
            self.threads.tend()
            if self.hub.latest is not None:
                self._report(self.hub.latest)
        log.info("stopping")
        self.notifier.send(STOPPING=1)
        for part in reversed(self.parts):
            part.stop()
        self.sampling.close(time.sleep)  # last: a driver that hangs must not keep state from being written
        log.info("stopped")
        return 0

    def _report(self, snapshot: Snapshot) -> None:
        """Send the status to systemd; log it the first time, and the number of series once it has settled."""
        if self.announced_at is None:
            self.announced_at = snapshot.at.mono
            self._announce(snapshot)
        if not self.is_settled and snapshot.at.mono - self.announced_at >= SETTLED_SECONDS:
            self.is_settled = True
            page = len(self.page() or ())
            log.info("sampling %d series, %d of them on the page of metrics (metrics.profile)", len(snapshot), page)
        if not self.threads.trouble():
            self.notifier.alive(self.sampling.heartbeat, self._status(snapshot))

    def _announce(self, snapshot: Snapshot) -> None:
        """Log what is sampled and where it is served, and notify systemd that units which depend on it may start."""
        ports = {reading.entity for reading in snapshot if reading.metric.name.startswith("coldplate_infini")}
        for report in snapshot.reports:
            facts = {"outcome": report.outcome.value, **({"detail": report.detail} if report.detail else {})}
            log.info("source %s", report.backend, extra={"facts": facts})
        first = "first sample: %d series, %d InfiniBand ports; more series follow from sources that are read rarely"
        log.info(first, len(snapshot), len(ports))
        for url in self.urls():
            log.info("serving", extra={"facts": {"url": url}})
        self.notifier.send(READY=1, STATUS=self._status(snapshot))

    def _status(self, snapshot: Snapshot) -> str:
        gpus = len(self.sampling.sampler.identities)
        kind = "synthetic GPU" if self.synthetic else "GPU"
        return f"{counted(gpus, kind)}, {len(snapshot)} series"
