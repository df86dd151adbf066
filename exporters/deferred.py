"""Give responses later: a handler returns one at once, and it is completed in any thread; those to reloads are such."""

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


StartReload = Callable[[Callable[[bool, str], None]], None]
"""Requests a reload and returns at once. Its argument is called once, in any thread, at the end of a reload that
started after the request, with success and a text."""

RELOAD_TIMEOUT_SECONDS = 60.0
"""Seconds after which a client gets the answer that the reload is still running."""

_MAX_WAITING = 16
"""Most clients that may wait: they must not take all of the server's slots."""

_MAX_UNANSWERED = 256
"""Most requests without a result: a reload that hangs must not collect those of clients that have gone."""

_LATE = Response(
    HTTPStatus.GATEWAY_TIMEOUT,
    b"the reload is still going on; the log and coldplate_config_last_reload_successful will say how it went\n",
)
_CROWDED = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"too many wait for a reload already\n")


class ReloadRequests:
    """Lets a bounded number of clients wait for the reload that they requested. For the server's thread."""

    def __init__(self, start: StartReload) -> None:
        self._start = start
        self._unanswered: list[Deferred] = []

    def ask(self) -> Answer:
        """Request a reload, which is made even if the client does not wait for it."""
        self._unanswered = [reload for reload in self._unanswered if reload.response is None]
        waiting = sum(not reload.abandoned for reload in self._unanswered)
        if waiting >= _MAX_WAITING or len(self._unanswered) >= _MAX_UNANSWERED:
            return _CROWDED
        later = Deferred(RELOAD_TIMEOUT_SECONDS, _LATE)
        self._unanswered.append(later)

        def answer(succeeded: bool, text: str) -> None:
            status = HTTPStatus.OK if succeeded else HTTPStatus.INTERNAL_SERVER_ERROR
            later.answer(Response(status, f"{text}\n".encode("utf-8", "replace")))

        self._start(answer)
        return later
