"""Give responses later: a handler returns one at once, and it is completed in any thread; those to reloads are such.

Each request of a reload is answered by one that started after it, because the file may have changed while an earlier
one was running. However many requests there are, at most one reload is running and one is pending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Union

from exporters.http_messages import Response

BUSY = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"the agent is busy: the answer was not ready in time\n")


class Deferred:
    """A response that a handler gives later.

    The client gets `late` if there is no response within `timeout`, in seconds. Only the first response counts.
    """

    __slots__ = ("_callback", "_lock", "abandoned", "late", "response", "timeout")

    def __init__(self, timeout: float = 10.0, late: Response = BUSY) -> None:
        self.timeout = timeout
        self.late = late
        self.abandoned = False
        """Whether the client no longer waits for the response, so that work on it may stop."""
        self._lock = threading.Lock()
        self.response: Response | None = None
        self._callback: Callable[[], None] | None = None

    def answer(self, response: Response) -> None:
        """Give the response. For any thread; returns at once."""
        with self._lock:
            if self.response is not None:
                return
            self.response = response
            callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when there is a response, in the thread that gives it; at once if there is one."""
        with self._lock:
            there = self.response is not None
            if not there:
                self._callback = callback
        if there:
            callback()

    def abandon(self) -> None:
        """Note that the client no longer waits, and drop the callback.

        The callback's object refers to this one, and often holds a page: the cycle would keep both in memory until the
        garbage collector runs, which in a process that makes little garbage takes hours.
        """
        self.abandoned = True
        with self._lock:
            self._callback = None


Answer = Union[Response, Deferred]
"""The result of a handler."""


logger = logging.getLogger(__name__)

StartReload = Callable[[Callable[[bool, str], None]], None]
"""Starts a reload and returns at once; calls its argument once, in any thread, with success and a text at the end."""

PATIENCE_SECONDS = 60.0
"""Seconds after which a client gets the answer that the reload is still running."""

_MOST = 16
"""Most clients that may wait: they must not take all of the server's slots."""

_LATE = Response(
    HTTPStatus.GATEWAY_TIMEOUT,
    b"the reload is still going on; the log and coldplate_config_last_reload_successful will say how it went\n",
)
_CROWDED = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"too many wait for a reload already\n")


class ReloadRequests:
    """Lets clients wait for the reload that they requested, one reload at a time."""

    def __init__(self, start: StartReload) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._told: list[Deferred] = []
        self._next: list[Deferred] = []
        self._running = self._again = False

    def ask(self) -> Answer:
        """Request a reload. For the server's thread, as is `step`."""
        with self._lock:
            self._next = [each for each in self._next if not each.abandoned]
            if len(self._next) + sum(not each.abandoned for each in self._told) >= _MOST:
                return _CROWDED
            later = Deferred(PATIENCE_SECONDS, _LATE)
            self._next.append(later)
            self._again = True
        self.step()
        return later

    def step(self) -> None:
        """Start the requested reload, unless one is running; even if the clients that requested it have gone."""
        with self._lock:
            if self._running or not self._again:
                return
            self._running, self._again = True, False
            self._told, self._next = self._next, []
        try:
            self._start(self._over)
        except Exception as error:
            logger.exception("reload not started")
            self._over(False, f"the reload could not be started: {error}")

    def _over(self, done: bool, text: str) -> None:
        """Take in the result of a reload. For any thread."""
        with self._lock:
            callbacks, self._told = self._told, []
            self._running = False
        status = HTTPStatus.OK if done else HTTPStatus.INTERNAL_SERVER_ERROR
        for each in callbacks:
            each.answer(Response(status, f"{text}\n".encode("utf-8", "replace")))
