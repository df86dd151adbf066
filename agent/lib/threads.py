"""Supervised threads: an exception that ends one, or a shortage that keeps it from starting, only costs time.

Its work restarts after a pause, a thread that could not be started is started later, and one that makes no progress is
reported. A thread that hangs cannot be killed; if it is `vital`, the watchdog gets the whole process restarted.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

log = logging.getLogger("coldplate.threads")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
"""Seconds until a thread's work is restarted after an exception, doubled each time."""
SETTLED_SECONDS = 2.0
"""Seconds of work after which a thread that failed is well again."""
SOUND_AFTER_SECONDS = 60.0
"""Seconds of work after which the next pause is back to the shortest."""
AWAY_SECONDS = 5.0
"""Seconds between two checks after which no thread is reported as stuck: the whole process did not run meanwhile."""

CLOSING_SECONDS = 2.0
"""Seconds that a part has for what it still has to do when the agent stops."""

Work = Callable[[], None]


class Part(Protocol):
    """A part of the agent that lives as long as the daemon. Parts are started in order, and stopped in reverse."""

    def start(self) -> None:
        """Begin the part's threads. Returns at once."""
        ...

    def stop(self) -> None:
        """Finish what cannot be lost, within a few seconds, and end. Raises nothing."""
        ...


def _nothing() -> None:
    """Do the work of a thread that is done: nothing."""


class ThreadState(NamedTuple):
    """The state of the threads of one name; `restarts` includes those of threads that have ended."""

    name: str
    up: bool
    restarts: int


class KeptThread:
    """One thread and its work, which is done when it returns. With a stall timeout it calls `beat` to show progress."""

    def __init__(
        self, name: str, work: Work, stall_timeout: float | None, vital: bool, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.stall_timeout = stall_timeout
        self.vital = vital
        self.restarts = 0
        self.beats = 0
        self.done = False
        self.trouble = ""
        """A text that says what is wrong with the thread now; empty while it is well."""
        self._work = work
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._logged_error = ""
        self._pause = FIRST_PAUSE_SECONDS
        self._fallen = False
        self._seen = 0
        self._moved_at = clock()
        self._began_at = clock()

    def beat(self) -> None:
        """Show progress. Called by the thread itself."""
        self.beats += 1

    def start(self) -> None:
        """Start the thread, unless it is running; if the system has no thread to give, the next call tries again."""
        if self.done or (self._thread is not None and self._thread.is_alive()):
            return
        if self._thread is not None:  # it failed while it waited to begin again
            self._thread = None
            self.restarts += 1
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        before, self.trouble = self.trouble, ""  # now, and not once it runs: it may fail at once
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self.trouble = before
            self._say(f"cannot be started: {error}")
        else:
            self._thread = thread
            self._moved_at = self._clock()

    def join(self, seconds: float) -> bool:
        """Wait for the work to be done; returns whether it is."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def check_progress(self, now: float, away: bool) -> None:
        """Check the thread at a monotonic second; `away` excuses it, since the process itself did not run."""
        if self._fallen and now - self._began_at > SETTLED_SECONDS:
            self._fallen, self.trouble = False, ""
        if self.stall_timeout is None or self._thread is None or self._fallen:
            return
        if self.beats != self._seen or away:
            if self._is_stuck:
                log.info("thread %s makes progress again", self.name)
                self.trouble = ""
            self._seen, self._moved_at = self.beats, now
        elif now - self._moved_at > self.stall_timeout and not self.trouble:
            self._say(f"has made no progress for {now - self._moved_at:.0f} s")

    @property
    def _is_stuck(self) -> bool:
        return self.trouble.startswith("has made no progress")

    def _run(self) -> None:
        while True:
            began = self._began_at = self._clock()
            try:
                self._work()
            except BaseException as error:  # whatever it is: nothing else would ever report it
                self._fell(error)
            else:
                self._work = _nothing  # what it refers to would stay in memory as long as this object
                self.done = True
                return
            if self._clock() - began > SOUND_AFTER_SECONDS:
                self._pause, self._logged_error = FIRST_PAUSE_SECONDS, ""
            self._pause, pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS), self._pause
            threading.Event().wait(pause)

    def _fell(self, error: BaseException) -> None:
        self.restarts += 1
        self._fallen = True
        text = f"ended by {type(error).__name__}: {error}"
        with contextlib.suppress(Exception):  # out of memory, say: the pause is the remedy
            self.trouble = text
            if text != self._logged_error:  # a thread that fails again and again is logged once
                self._logged_error = text
                log.error("thread %s %s; restarting it", self.name, text, exc_info=error)

    def _say(self, trouble: str) -> None:
        if trouble.partition(":")[0] != self.trouble.partition(":")[0]:
            log.error("thread %s %s", self.name, trouble)
        self.trouble = trouble


class Threads:
    """All supervised threads of one process. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: list[KeptThread] = []
        self._restarts: dict[str, int] = {}
        """Restarts of threads that are done, by name: a counter must not fall."""
        self._looked_at = clock()

    def begin(self, name: str, work: Work, *, stall_timeout: float | None = None, vital: bool = False) -> KeptThread:
        """Start a thread for this work, which ends when the work returns. Never raises.

        `stall_timeout` is how many seconds it may go without a beat, if it beats at all. Without a `vital` thread the
        process is of no use.
        """
        kept = KeptThread(name, work, stall_timeout, vital, self._clock)
        kept.start()  # before it is listed: `tend` in another thread would start it a second time
        with self._lock:
            self._kept.append(kept)
        return kept

    def tend(self) -> None:
        """Start threads that failed to start, and report stalled ones. Call about once a second."""
        now = self._clock()
        away = now - self._looked_at > AWAY_SECONDS
        self._looked_at = now
        with self._lock:
            for kept in [thread for thread in self._kept if thread.done]:
                self._kept.remove(kept)
                self._restarts[kept.name] = self._restarts.get(kept.name, 0) + kept.restarts
            kept_now = tuple(self._kept)
        for kept in kept_now:
            kept.start()
            kept.check_progress(now, away)

    def states(self) -> list[ThreadState]:
        """Return one state for each name that there is or was."""
        with self._lock:
            states = {name: ThreadState(name, True, restarts) for name, restarts in self._restarts.items()}
            for kept in self._kept:
                before = states.get(kept.name, ThreadState(kept.name, True, 0))
                up = before.up and not kept.trouble
                states[kept.name] = ThreadState(kept.name, up, before.restarts + kept.restarts)
        return list(states.values())

    def troubles(self) -> dict[str, str]:
        """Return what is wrong with the threads of each name, vital or not, without those that are well."""
        with self._lock:
            return {thread.name: thread.trouble for thread in self._kept if thread.trouble}

    def trouble(self) -> str:
        """Return a text that says what is wrong with a vital thread; empty while all are well."""
        with self._lock:
            return next(
                (f"thread {thread.name} {thread.trouble}" for thread in self._kept if thread.vital and thread.trouble),
                "",
            )
