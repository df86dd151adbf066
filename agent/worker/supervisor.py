"""The outside of the device worker: starts it, communicates with it, and makes sure that one is running.

States: `starting` (opening its source), `running`, `stopping` (ordered to exit, not gone yet), `down` (gone;
to be restarted at a known time, or once it is not held any more). There is never a second worker before the first is
gone: a process in uninterruptible sleep cannot be killed, and a second one would hang on the same lock.

A worker answers every order at once, whatever its driver does. One that does not is stopped, swapped out or
wedged, and is terminated within seconds. One that answers while its devices hang is left alone for long: they resume
by themselves when the driver does, and killing a process in the middle of a call has been seen to wedge a GPU
(github.com/NVIDIA/dcgm-exporter/issues/84).
"""

from __future__ import annotations

import json
import logging
import signal
from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from msgspec import Struct

from agent.backends.protocol import ChannelError, LaneSample
from agent.model import Lane, Reason
from agent.worker.decode import Decoder
from agent.worker.trust import WorkerTrust
from agent.worker.worker_messages import ANEW, Alive, Hello, Message, MessageError, Refusal
from agent.worker.worker_process import ChildProcess, exit_text

log = logging.getLogger("coldplate.worker")

PING_SECONDS = 1.0
"""Seconds after which a worker that had no other order gets one, to see whether it answers."""
SILENCE_SECONDS = 3.0
"""Seconds without an answer after which a worker is ended."""
FIRST_SILENCE_SECONDS = 10.0
"""The same for one that has not answered yet: its modules may have to be read from a slow disk."""
MAX_STEP_SECONDS = 2.0
"""Most seconds of silence between two checks that count: if it was longer, this process was suspended."""
OPENING_SECONDS = 3.0
"""Seconds of opening a source after which the devices are reported as out of order."""
STUCK_SECONDS = 90.0
"""Seconds for which a worker that answers may neither open its source nor report any device: two timeouts of the GPU's
firmware, of 45 s each. Each worker in a row gets twice as long, up to `LONGEST_STUCK_SECONDS`."""
LONGEST_STUCK_SECONDS = 900.0
TERM_TIMEOUT_SECONDS = 5.0
"""Seconds from SIGTERM to SIGKILL: the worker waits 1 s for its readers and 3 s for the library."""
WEDGED_TIMEOUT_SECONDS = 1.5
"""The same for a worker that does not answer."""
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 10.0
NEVER_SEEN_DELAY_SECONDS, GONE_DELAY_SECONDS = 60.0, 5.0
"""Longest delays between searches for a driver: for one that never existed, and for one that is being replaced."""
SOUND_AFTER_SECONDS = 60.0
"""After running this long a worker is restarted without the delay from earlier failures."""
REPEAT_LOG_SECONDS = 3600.0
"""Seconds after which a failure that does not change, such as a library that cannot be opened, is logged again."""
AHEAD_SECONDS = 1.0
"""Seconds that a sample may be ahead of the time at which the pipe was read: more is garbage, and never gets old."""
MEMORY = 128 * 2**20
"""Bytes that a worker may hold. It holds 22 MiB on the substitute for the library; the unit gives the agent 256 MiB."""
REJECTED_AT_ONCE = 500
"""Rejected lines in one read after which the rest are not even examined."""
UNKILLABLE = "the device worker cannot be killed: it sleeps in the driver, and so would a new one"
WEIGH_SECONDS = 2.0
"""Seconds between two checks of its memory."""


class WorkerOptions(Struct, frozen=True):
    """What the worker reads. `epoch` is the monotonic second at which a scenario began; `trace` is the file of driver
    calls that stands in for NVML's library, if any does.
    """

    source: str
    scenario: str = ""
    epoch: float = 0.0
    trace: str = ""
    log_level: str = "info"
    log_format: str = "logfmt"

    def argument(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__struct_fields__})


def without_worker() -> Supervisor:
    """Return a supervisor that never starts a worker, where no devices are read."""
    supervisor = Supervisor(WorkerOptions(""))
    supervisor.held = True
    return supervisor


class Supervisor:
    """Keeps one worker process running. All methods belong to one thread; none blocks. Times are monotonic seconds.

    `start` starts a worker from its options as an argument, and raises OSError if it cannot.
    """

    def __init__(self, options: WorkerOptions, start: Callable[[str], ChildProcess] = ChildProcess) -> None:
        self._options = options
        self._launch = start
        self._process: ChildProcess | None = None
        self._decoder = Decoder(options.source)
        self._trust = WorkerTrust()
        self.garbage = 0
        """Rejected lines of all workers."""
        self._state = "down"
        self._since = 0.0
        self.opened_at: float | None = None
        """The monotonic second at which the worker listed its devices; None before."""
        self._start_at = 0.0
        self._delay = FIRST_DELAY_SECONDS
        self._orders = 0
        self._open_orders: deque[tuple[int, float]] = deque()
        """Numbers of the orders that have not been answered, and when they were given."""
        self._ordered_at = self._stepped_at = self._weighed_at = 0.0
        self._silent = 0.0
        """Seconds for which an order has been without an answer."""
        self.has_answered = False
        """Whether the worker ever answered an order: its silence says nothing of the driver before."""
        self._is_report_awaited = False
        """Whether devices were ordered to be read since the last report of any."""
        self._waited = 0.0
        """Seconds of waiting for the source to open, or for a report of any device."""
        self._stuck = STUCK_SECONDS
        self._kill_at = 0.0
        self._killed = False
        self._noticed = False
        self.restarts = 0
        self.refusal: Refusal | None = None
        self._starts = 0
        self._had_hello = False
        self._logged: tuple[str, float] | None = None
        """The last failure that was logged, and when."""
        self._reason = ""
        """Why this side terminated the worker."""
        self._own_refusal: Refusal | None = None
        """Why the worker, by its own message, cannot read its source: it ends because of that."""
        self._unread: list[Message] = []
        self.held = False
        """Whether no worker may run for now, because the driver must be free."""
        self.ended: Refusal | None = None
        """What went wrong, until the caller records and clears it; None for a worker that found no devices."""

    @property
    def running(self) -> bool:
        return self._state == "running"

    @property
    def awaited(self) -> bool:
        """Whether the devices may still open soon, so that a first sample should wait for them."""
        return self.opening and not self._noticed

    @property
    def opening(self) -> bool:
        """Whether the devices may still open, however long it has taken: without persistence mode that is seconds."""
        return not (self.running or self.held or self.refusal is not None)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def descriptor(self) -> int | None:
        """The descriptor to poll for messages; None without a worker."""
        return self._process.descriptor if self._process else None

    def step(self, now: float) -> None:
        """Start, check or end the worker, or collect its end, as its state requires. Call it at least once a second."""
        if self._process is None:
            if now >= self._start_at and not self.held:
                self._start(now)
        elif self._process.status() is not None:
            self._reap(now)
        elif self._state == "stopping":
            self._check_termination(now)
        else:
            self._ping_worker(now)
            self._check_worker(now)
        self._stepped_at = now

    def hold(self, now: float) -> None:
        """End the worker, and start no other before `release`. The driver is free once there is no `pid`."""
        self.held = True
        if self._process is not None and self._state != "stopping":
            self._end(now, TERM_TIMEOUT_SECONDS)

    def release(self, now: float) -> None:
        """Start a worker again as soon as the last one is gone. It does not count as a restart: nothing went wrong."""
        self.held = False
        self._start_at, self._delay = now, FIRST_DELAY_SECONDS
        self._starts = 0
        if self._process is not None and self._killed:
            self.ended = Refusal(False, UNKILLABLE, Reason.TIMEOUT)

    def ask(self, lanes: Iterable[Lane], now: float) -> bool:
        """Order these lanes; False if there is no worker to ask."""
        if self._state != "running" or not self._order(" ".join(lane.value for lane in lanes), now):
            return False
        self._is_report_awaited = True
        return True

    def receive(self, now: float) -> list[Message]:
        """Return all complete messages; of a worker that is being ended, only its reason for leaving."""
        messages, self._unread = self._unread, []
        lines = self._process.lines(now) if self._process else []
        self._trust.record_bytes(sum(map(len, lines)), now)
        most = self.garbage + REJECTED_AT_ONCE
        for line in lines:
            try:
                message = self._decoder.decode(line)
                self._validate(message, now)
            except MessageError as error:
                self._trust.record_garbage(error, now)
                self.garbage += 1
                if self.garbage == most:
                    break  # the worker is broken, and must not delay a snapshot
                continue
            if isinstance(message, Alive):
                self._record_answer(message.order)
            elif isinstance(message, Refusal) or (message is not None and self._state != "stopping"):
                self._handle_message(message, now)
                messages.append(message)
        return messages

    def stop(self, wait: Callable[[float], None]) -> None:
        """End the worker and wait for it, 6 s at most; `wait` sleeps for a number of seconds."""
        if self._process is None:
            return
        self._process.signal(signal.SIGTERM, signal.SIGCONT)
        for _ in range(120):
            self._process.lines(self._stepped_at)  # one that waits for room in a pipe could not exit
            if self._process.status() is not None:
                break
            wait(0.05)
        else:
            log.error("device worker does not exit; killing it", extra={"facts": {"pid": self._process.pid}})
            self._process.signal(signal.SIGKILL)
        self._process.close(self._stepped_at)
        self._process = None

    def ping(self, now: float) -> None:
        """Send an empty order (ping); the answer shows that the worker is alive."""
        self._order("", now)

    def abandon(self) -> None:
        """Abandon the worker without waiting: once its pipe of orders is closed, it exits as soon as it can."""
        if self._process is not None:
            self._process.close(self._stepped_at)
            self._process = None

    def _start(self, now: float) -> None:
        try:
            process = self._launch(self._options.argument())
        except (OSError, RuntimeError, MemoryError) as error:
            self._delay = min(self._delay * 2, LONGEST_DELAY_SECONDS)
            self._start_at = now + self._delay
            self._log_failure(
                f"cannot start the device worker: {error}; retrying in {self._delay:.1f} s", now, logging.ERROR
            )
            return
        self._process, self._state, self._since = process, "starting", now
        self._decoder, self._reason = Decoder(self._options.source, self._decoder), ""
        self._open_orders.clear()
        self._ordered_at = self._stepped_at = self._weighed_at = now
        self._silent, self._waited, self._is_report_awaited = 0.0, 0.0, False
        self._killed = self._noticed = self.has_answered = False
        self._own_refusal = None
        self.opened_at = None
        self._trust = WorkerTrust()
        self._starts += 1
        if self._starts > 1 and (self.refusal is None or not self.refusal.absent):
            self.restarts += 1

    def _order(self, words: str, now: float) -> bool:
        if self._process is None:
            return False
        self._orders += 1
        self._ordered_at = now
        self._open_orders.append((self._orders, now))
        return self._process.order(f"{self._orders} {words}\n".encode())

    def _ping_worker(self, now: float) -> None:
        """Measure how long the worker has been silent, give it something to answer, and request what was lost."""
        if self._open_orders:
            _, since = self._open_orders[0]
            self._silent += min(now - max(self._stepped_at, since), MAX_STEP_SECONDS)
        if self._is_report_awaited or self._state == "starting":
            self._waited += min(now - self._stepped_at, MAX_STEP_SECONDS)
        due = now - self._ordered_at >= PING_SECONDS
        unheard = due and self.has_answered and self._state == "starting"  # perhaps it is open, and its hello was lost
        if self._trust.consume_resend_request(now) or unheard:
            self._order(ANEW, now)
        elif due:
            self._order("", now)

    def _check_worker(self, now: float) -> None:
        assert self._process is not None
        if self._silent > (SILENCE_SECONDS if self.has_answered else FIRST_SILENCE_SECONDS):
            self._terminate(now, f"has not answered for {self._silent:.0f} s", WEDGED_TIMEOUT_SECONDS)
            return
        if self._waited > self._stuck:
            waited, self._stuck = self._stuck, min(2 * self._stuck, LONGEST_STUCK_SECONDS)
            event = "opened its source" if self._state == "starting" else "reported any device"
            self._terminate(now, f"has not {event} for {waited:.0f} s", TERM_TIMEOUT_SECONDS)
        elif self._trust.lost:
            self._terminate(now, self._trust.lost, TERM_TIMEOUT_SECONDS)
        elif now - self._weighed_at >= WEIGH_SECONDS:
            self._weighed_at = now
            resident = self._process.resident()
            if resident is not None and resident > MEMORY:
                self._terminate(now, f"uses {resident // 2**20} MiB of memory", WEDGED_TIMEOUT_SECONDS)
        if self._state == "starting" and not self._noticed and now - self._since > OPENING_SECONDS:
            self._noticed = True
            detail = f"the driver has not answered for {OPENING_SECONDS:.0f} s while opening its library"
            log.warning("devices: %s", detail, extra={"facts": {"source": self._options.source}})
            self.ended = Refusal(False, detail, Reason.TIMEOUT)

    def _terminate(self, now: float, problem: str, seconds: float) -> None:
        log.warning("device worker %s; terminating it", problem, extra={"facts": {"pid": self.pid}})
        self._reason = f"the device worker {problem}"
        self.ended = Refusal(False, self._reason, Reason.TIMEOUT)
        self._end(now, seconds)

    def _end(self, now: float, seconds: float) -> None:
        assert self._process is not None
        # A stopped process handles no signal but SIGKILL until it continues.
        self._process.signal(signal.SIGTERM, signal.SIGCONT)
        self._state, self._since, self._kill_at = "stopping", now, now + seconds

    def _check_termination(self, now: float) -> None:
        assert self._process is not None
        facts = {"facts": {"pid": self.pid}}
        if not self._killed and now >= self._kill_at:
            log.warning("device worker ignores SIGTERM; killing it", extra=facts)
            self._process.signal(signal.SIGKILL)
            self._killed, self._kill_at = True, now + TERM_TIMEOUT_SECONDS
        elif self._killed and now >= self._kill_at:
            self._kill_at = inf
            log.error("%s; waiting for it to exit", UNKILLABLE, extra=facts)
            self.ended = Refusal(False, UNKILLABLE, Reason.TIMEOUT)

    def _reap(self, now: float) -> None:
        assert self._process is not None
        status = self._process.status()
        assert status is not None
        self._unread = self.receive(now)  # its last messages, among them why it left
        self._process.close(now)
        if self.held:
            self._process, self._state = None, "down"
            return
        sound = self.opened_at is not None and now - self.opened_at > SOUND_AFTER_SECONDS
        delay = FIRST_DELAY_SECONDS if sound else self._delay
        is_absent = self.refusal is not None and self.refusal.absent
        never_seen = NEVER_SEEN_DELAY_SECONDS if is_absent else LONGEST_DELAY_SECONDS
        self._delay = min(delay * 2, GONE_DELAY_SECONDS if self._had_hello else never_seen)
        if not is_absent:
            if sound:
                self._logged = None
            self._log_failure(f"device worker {exit_text(status)}; restarting it in {delay:.1f} s", now)
            self.ended = self._end_reason(status)
        self._process, self._state, self._start_at = None, "down", now + delay

    def _log_failure(self, text: str, now: float, level: int = logging.WARNING) -> None:
        """Log a failure when it changes, and rarely while it stays the same."""
        if self._logged is not None:
            last, at = self._logged
            if last == text and now - at < REPEAT_LOG_SECONDS:
                return
        self._logged = text, now
        log.log(level, "%s", text)

    def _end_reason(self, status: int) -> Refusal:
        if self._reason:
            return Refusal(False, self._reason, Reason.TIMEOUT)
        return self._own_refusal or Refusal(False, f"the device worker {exit_text(status)}")

    def _validate(self, message: Message | Alive | None, now: float) -> None:
        """Reject what only this side can know to be false. Raises MessageError."""
        if isinstance(message, (LaneSample, ChannelError)) and message.mono > now + AHEAD_SECONDS:
            raise MessageError(f"a sample from the future: {message.mono} s, now {now} s")
        if isinstance(message, Alive) and message.order > self._orders:
            raise MessageError(f"an answer to order {message.order}, but only {self._orders} were given")

    def _record_answer(self, order: int) -> None:
        self.has_answered = True
        while self._open_orders and self._open_orders[0][0] <= order:
            self._open_orders.popleft()
            self._silent = 0.0

    def _handle_message(self, message: Message, now: float) -> None:
        if isinstance(message, Hello):
            if self.refusal is not None and self.refusal.absent:
                self._delay = FIRST_DELAY_SECONDS  # the search for a driver says nothing about this worker
            if self._state == "starting":
                self._state, self.opened_at, self._waited = "running", now, 0.0
            self.refusal, self._had_hello = None, True
        elif isinstance(message, Refusal):
            if self.refusal != message:
                level = logging.INFO if message.absent else logging.WARNING
                facts = {"source": self._options.source}
                log.log(level, "devices: %s", message.detail, extra={"facts": facts})
            self.refusal = message
            self._own_refusal = None if message.absent else message
        elif isinstance(message, (LaneSample, ChannelError)):
            self._is_report_awaited, self._waited, self._stuck = False, 0.0, STUCK_SECONDS
