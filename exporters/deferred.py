"""A response that comes later: the handler returns it at once, and it is completed later, in any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Union

from exporters.http_messages import Response

BUSY = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"the agent is busy: the answer was not ready in time\n")


class Deferred:
    """The promise of a response.

    The client gets `late` if there is no response within `patience`, in seconds. Only the first response counts.
    """

    __slots__ = ("_lock", "_response", "_tell", "abandoned", "late", "patience")

    def __init__(self, patience: float = 10.0, late: Response = BUSY) -> None:
        self.patience = patience
        self.late = late
        self.abandoned = False
        """Whether the answer is no longer wanted, so that work on it may stop."""
        self._lock = threading.Lock()
        self._response: Response | None = None
        self._tell: Callable[[], None] | None = None

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
            tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def listen(self, tell: Callable[[], None]) -> None:
        """Have `tell` called once when there is a response, in the thread that gives it; at once if there is one."""
        with self._lock:
            there = self._response is not None
            if not there:
                self._tell = tell
        if there:
            tell()

    def abandon(self) -> None:
        """Say that the answer is no longer wanted.

        Whoever listens knows this object, and often holds a page: without letting go of it, both would stay until the
        garbage collector comes by, which in a process that makes little garbage is a matter of hours.
        """
        self.abandoned = True
        with self._lock:
            self._tell = None


Answer = Union[Response, Deferred]
"""What a handler may return."""
