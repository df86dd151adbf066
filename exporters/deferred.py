"""A response that comes later: the handler returns it at once, and it is completed later, in any thread."""

from __future__ import annotations

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

    __slots__ = ("_callback", "_lock", "_response", "abandoned", "late", "timeout")

    def __init__(self, timeout: float = 10.0, late: Response = BUSY) -> None:
        self.timeout = timeout
        self.late = late
        self.abandoned = False
        """Whether the client no longer waits for the response, so that work on it may stop."""
        self._lock = threading.Lock()
        self._response: Response | None = None
        self._callback: Callable[[], None] | None = None

    @property
    def response(self) -> Response | None:
        """The response, None before there is one."""
        return self._response

    def answer(self, response: Response) -> None:
        """Give the response. For any thread; returns at once."""
        with self._lock:
            if self._response is not None:
                return
            self._response = response
            callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when there is a response, in the thread that gives it; at once if there is one."""
        with self._lock:
            there = self._response is not None
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
