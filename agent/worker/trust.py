"""How far a worker is trusted: what is rejected, when everything is requested again, and when it is replaced."""

import logging

from agent.worker.worker_messages import MessageError

log = logging.getLogger("coldplate.worker")

REQUEST_INTERVAL_SECONDS = 1.0
"""Seconds between two requests to send everything again."""
CALM_SECONDS = 3.0
"""Seconds without garbage after which a spell of it is over."""
SPELL_SECONDS = 5.0
"""Seconds of garbage after which the worker is no longer trusted."""
FLOOD = 8 * 2**20
"""Bytes a second that may come permanently: 72 GPUs, ten times a second, are 1.5 MB."""
FLOOD_ROOM = 64 * 2**20
"""Bytes that may come in a burst beyond that."""


class WorkerTrust:
    """How far one worker is trusted. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.lost = ""
        """Why the worker is no longer trusted; empty while it is."""
        self._first: float | None = None
        self._last = 0.0
        self._must_resend = False
        self._requested_at: float | None = None
        self._level = 0.0
        self._weighed: float | None = None

    def record_garbage(self, error: MessageError, now: float) -> None:
        """Record that a line was garbage."""
        # Only the first is a warning: a broken worker would fill the journal with the others.
        level = logging.WARNING if self._first is None else logging.DEBUG
        log.log(level, "device worker sent garbage: %s", error)
        if self._first is None or now - self._last > CALM_SECONDS:
            self._first = now
        self._last = now
        self._must_resend = True
        if now - self._first > SPELL_SECONDS:
            self.lost = f"has sent garbage for {now - self._first:.0f} s"

    def record_bytes(self, size: int, now: float) -> None:
        """Record that lines of this many bytes came."""
        if self._weighed is not None:
            self._level = max(self._level - FLOOD * (now - self._weighed), 0.0)
        self._weighed = now
        self._level += size
        if self._level > FLOOD_ROOM:
            self.lost = "floods its output"

    def consume_resend_request(self, now: float) -> bool:
        """Return whether to request everything again now; True once for each request."""
        if not self._must_resend or (
            self._requested_at is not None and now - self._requested_at < REQUEST_INTERVAL_SECONDS
        ):
            return False
        self._must_resend, self._requested_at = False, now
        return True
