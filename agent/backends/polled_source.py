"""A source that may be slow to answer, and how often it is asked.

A backend is read once for each fast tick, up to ten times a second. A baseboard
management controller updates its readings every 4 to 8 s and may take seconds to answer, or forever: it is asked
every 5 s or less often, in a thread that the tick waits for no longer than the source's grace. Until the next answer
the last one is exposed again: it is as old as what the controller itself would return. An
error removes it at once, and so does no answer at all within the source's timeout.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from agent.backends.protocol import AbsentError, DeviceError
from agent.lib.logs import LogOnce
from agent.lib.wording import no_answer_for
from agent.model import Reason

ABSENT_RETRY_SECONDS = 60.0
FIRST_RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 15.0
"""Most seconds until a failed source is asked again, so that recovery shows soon; a working one is asked each 5 s."""

log = logging.getLogger("coldplate.backend")

T = TypeVar("T")
Spawn = Callable[[Callable[[], None]], None]


def spawn_thread(job: Callable[[], None]) -> None:
    """Run the job in a thread that does not keep the process alive."""
    threading.Thread(target=job, name="slow-source", daemon=True).start()


class PollableSource:
    """What is asked, and how patiently."""

    name: str
    period: float
    """Seconds from one read to the next."""
    configured = False
    """Whether the operator named it: then its failure is reported even if another source answers."""
    first_retry, last_retry = FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS
    denied_retry = LAST_RETRY_SECONDS
    """Seconds after which a source that denied access is asked again."""
    answer_wait = 0.0
    """Seconds that a tick waits for the source, so that a prompt answer is shown at once."""
    timeout = 10.0
    """Seconds without an answer after which the source's last value is not shown any more."""

    def close(self) -> None:
        """Release what is held; may be called more than once."""


class PolledSource(Generic[T]):
    """A source that is asked no more often than its period, with at most one read in flight.

    `read` asks it; it raises AbsentError if this node has no such source, and DeviceError if it does not answer or what
    it answers cannot be.
    """

    def __init__(self, source: PollableSource, read: Callable[[], T], spawn: Spawn = spawn_thread) -> None:
        self.source = source
        self.latest: T | DeviceError | AbsentError | None = None
        """Its last answer, while that counts; None before the first one."""
        self._spawn = spawn
        self._read_source = read
        self._answer: T | Exception | None = None
        self._answered = threading.Event()
        self._once = LogOnce(log)
        self._read_began: float | None = None  # while a read is in flight, when it began
        self._due = float("-inf")
        self._retry = source.first_retry
        self._closed = False

    @property
    def awaited(self) -> bool:
        """Whether the source was asked and nothing is known of it yet."""
        return self._read_began is not None and self.latest is None

    def poll(self, mono: float) -> int:
        """Ask the source if it is due, and take its answer if there is one; returns the number of reads begun."""
        begun = 0
        if self._read_began is None and mono >= self._due:
            begun, self._read_began = 1, mono
            self._begin(mono)
        answer = self._answer
        if answer is not None:
            self._answer = self._read_began = None
            self._store_answer(answer, mono)
        elif self._read_began is not None and mono - self._read_began > self.source.timeout:
            self.latest = DeviceError(Reason.TIMEOUT, f"{no_answer_for(mono - self._read_began)} yet")
        return begun

    def close(self) -> None:
        """Release the source; one that is being read is released when the read ends."""
        self._closed = True
        if self._read_began is None:
            self.source.close()

    def _begin(self, mono: float) -> None:
        self._answered.clear()
        try:
            self._spawn(self._ask)
        except (RuntimeError, MemoryError) as error:
            remedy = "raise TasksMax in the unit, or the user's process limit"
            self._read_began, self._due = None, mono + FIRST_RETRY_SECONDS
            self.latest = DeviceError(Reason.DENIED, f"{error}; {remedy}")
            return
        if self.source.answer_wait:
            self._answered.wait(self.source.answer_wait)

    def _ask(self) -> None:
        try:
            self._answer = self._read_source()
        except Exception as error:  # the poll that takes the answer separates expected errors from others
            self._answer = error
        self._answered.set()
        if self._closed:
            self.source.close()

    def _store_answer(self, answer: T | Exception, mono: float) -> None:
        if isinstance(answer, Exception) and not isinstance(answer, DeviceError | AbsentError):
            # An unexpected error affects only its own source, and is logged once in full.
            self._once.problem("failed", "reading %s failed", self.source.name, level=logging.ERROR, error=answer)
            answer = DeviceError(Reason.MALFORMED, f"{type(answer).__name__}: {answer}")
        self.latest = answer
        if isinstance(answer, AbsentError):
            self._due = mono + ABSENT_RETRY_SECONDS
        elif isinstance(answer, DeviceError):
            self._due = mono + (self.source.denied_retry if answer.reason is Reason.DENIED else self._retry)
            self._retry = min(2 * self._retry, self.source.last_retry)
        else:
            self._retry = self.source.first_retry
            self._due = mono + self.source.period
