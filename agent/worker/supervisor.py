"""The outside of the device worker: starts it, speaks to it, and sees to it that one is there.

States: `starting` (opening its source), `running`, `stopping` (told to go, not gone yet), `down` (gone;
to be started again at a known time). There is never a second worker beside one that is not gone: a
process in uninterruptible sleep cannot be killed, and a second one would hang on the same lock.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.backends.protocol import ChannelError, LaneSample
from agent.model import Lane
from agent.worker.wire import MAX_LINE, Decoder, Hello, Message, Refusal, WireError

log = logging.getLogger("coldplate.worker")

OPEN_PATIENCE = 90.0
"""Seconds that opening a source may take: without persistence mode the driver wakes each GPU first."""
TERM_PATIENCE = 8.0
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
AHEAD = 1.0
"""Seconds that a sample may be ahead of the time at which reading the pipe began: more is garbage, and would
never grow old."""
ROOT = str(Path(__file__).resolve().parents[2])
BOOT = "import sys, runpy; sys.path.insert(0, {root!r}); runpy.run_module('agent.worker', run_name='__main__')"
"""Runs this very package, isolated: `python -m` would run whatever `agent` lies in the current directory."""
NEVER_SEEN_DELAY, GONE_DELAY = 60.0, 5.0
"""Longest delays between looks for a driver: one that never was here, and one that was and is being replaced."""
SOUND_AFTER = 60.0
"""A worker that ran this long starts again without the delay that earlier failures earned."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the worker reads. `epoch` is the monotonic second at which a scenario began."""

    source: str
    scenario: str = ""
    epoch: float = 0.0
    log_level: str = "info"
    log_format: str = "logfmt"

    def argument(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


class Supervisor:
    """Keeps one worker process. All methods belong to one thread; none blocks. Times are monotonic seconds."""

    def __init__(self, options: WorkerOptions, silence: float) -> None:
        self._options = options
        self._silence = silence
        self._process: subprocess.Popen[bytes] | None = None
        self._decoder = Decoder()
        self._buffer = b""
        self._state = "down"
        self._since = 0.0
        self._start_at = 0.0
        self._delay = FIRST_DELAY
        self._unanswered: float | None = None
        """When the first order was given that nothing has come back for."""
        self._killed = False
        self.restarts = 0
        self.garbage = 0
        self.refusal: Refusal | None = None
        self._starts = 0
        self._seen = False
        self._reason = ""
        self._unread: list[Message] = []
        self.downfall: str | None = None
        """How the last worker ended, until somebody takes note and clears it; None for one that found no devices."""

    @property
    def running(self) -> bool:
        return self._state == "running"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def descriptor(self) -> int | None:
        """What to poll for messages; None while there is no worker."""
        return self._process.stdout.fileno() if self._process and self._process.stdout else None

    def step(self, now: float) -> None:
        """Start, end or bury the worker, as its state asks. Call it once a tick."""
        if self._process is None:
            if now >= self._start_at:
                self._start(now)
            return
        if self._process.poll() is not None:
            self._bury(now)
        elif self._state == "starting" and now - self._since > OPEN_PATIENCE:
            self._dismiss(now, f"did not open its source within {OPEN_PATIENCE:.0f} s")
        elif self._state == "running" and self._unanswered is not None and now - self._unanswered > self._silence:
            self._dismiss(now, f"was silent for {now - self._unanswered:.1f} s")
        elif self._state == "stopping" and not self._killed and now - self._since > TERM_PATIENCE:
            log.warning("device worker ignores SIGTERM; killing it", extra={"facts": {"pid": self._process.pid}})
            self._process.kill()
            self._killed = True

    def ask(self, lanes: Iterable[Lane], now: float) -> bool:
        """Order these lanes; False if there is nobody to ask."""
        if self._state != "running" or self._process is None or self._process.stdin is None:
            return False
        order = " ".join(lane.value for lane in lanes) + "\n"
        try:
            os.write(self._process.stdin.fileno(), order.encode())
        except OSError:
            return False  # full or broken pipe: `step` will see why
        if self._unanswered is None:
            self._unanswered = now
        return True

    def receive(self, now: float) -> list[Message]:
        """All whole messages that have come."""
        messages, self._unread = self._unread, []
        for line in self._lines():
            try:
                message = self._decoder.decode(line)
                if isinstance(message, (LaneSample, ChannelError)) and message.mono > now + AHEAD:
                    raise WireError(f"a sample of the future: {message.mono} s, and it is {now} s")
            except WireError as error:
                self.garbage += 1
                # The first is told; a worker gone mad would fill the journal with the others.
                log.log(
                    logging.WARNING if self.garbage == 1 else logging.DEBUG, "device worker sent garbage: %s", error
                )
                continue
            self._unanswered = None
            if isinstance(message, Hello):
                if self.refusal is not None and self.refusal.absent:
                    self._delay = FIRST_DELAY  # what was earned by looking for a driver says nothing about this worker
                self._state, self._since, self.refusal, self._seen = "running", now, None, True
            elif isinstance(message, Refusal):
                self._refused(message)
            if message is not None:
                messages.append(message)
        return messages

    def stop(self, wait: Callable[[float], None]) -> None:
        """End the worker and wait for it, 6 s at most; `wait` sleeps for a number of seconds."""
        if self._process is None:
            return
        self._terminate()
        for _ in range(120):
            if self._process.poll() is not None:
                break
            wait(0.05)
        else:
            log.error("device worker does not end; killing it", extra={"facts": {"pid": self._process.pid}})
            self._process.kill()
        self._close_pipes()
        self._process = None

    def _start(self, now: float) -> None:
        command = [sys.executable, "-I", "-c", BOOT.format(root=ROOT), self._options.argument()]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
            )
        except OSError as error:
            self._delay = min(self._delay * 2, LONGEST_DELAY)
            self._start_at = now + self._delay
            log.error("cannot start the device worker: %s; trying again in %.1f s", error, self._delay)
            return
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        os.set_blocking(process.stdin.fileno(), False)
        self._process, self._state, self._since, self._killed = process, "starting", now, False
        self._decoder, self._buffer, self._reason = Decoder(), b"", ""
        self._unanswered = None
        self._starts += 1
        if self._starts > 1 and (self.refusal is None or not self.refusal.absent):
            self.restarts += 1

    def _bury(self, now: float) -> None:
        assert self._process is not None
        status = self._process.returncode
        self._unread = self.receive(now)  # its last words, among them why it left
        self._close_pipes()
        sound = self._state == "running" and now - self._since > SOUND_AFTER
        delay = FIRST_DELAY if sound else self._delay
        if self.refusal is not None and self.refusal.absent:
            self._delay = min(delay * 2, GONE_DELAY if self._seen else NEVER_SEEN_DELAY)
        else:
            self._delay = min(delay * 2, GONE_DELAY if self._seen else LONGEST_DELAY)
            how = f"was killed: {signal.strsignal(-status) or -status}" if status < 0 else f"ended with status {status}"
            log.warning("device worker %s; starting it again in %.1f s", how, delay)
            self.downfall = self._reason or f"the device worker {how}"
        self._process, self._state, self._start_at = None, "down", now + delay

    def _refused(self, refusal: Refusal) -> None:
        if self.refusal != refusal:
            log.log(
                logging.INFO if refusal.absent else logging.WARNING,
                "devices: %s",
                refusal.detail,
                extra={"facts": {"source": self._options.source}},
            )
        self.refusal = refusal

    def _dismiss(self, now: float, why: str) -> None:
        log.warning("device worker %s; ending it", why)
        self._reason = self.downfall = f"the device worker {why}"
        self._terminate()
        self._state, self._since = "stopping", now

    def _terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def _lines(self) -> list[bytes]:
        descriptor = self.descriptor
        if descriptor is None:
            return []
        parts, taken = [self._buffer], 0
        while taken < MAX_LINE:  # a worker that writes faster than we read must not keep us here
            try:
                data = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                break
            parts.append(data)
            taken += len(data)
        *lines, self._buffer = b"".join(parts).split(b"\n")
        if len(self._buffer) > MAX_LINE:
            self.garbage += 1
            self._buffer = b""
        return lines

    def _close_pipes(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
