"""Requests reloads from the daemon, and passes on their results.

Each request is answered by a reload that started after it, because the file may have changed while an earlier one
was running. However many requests there are, at most one reload is running and one is pending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http import HTTPStatus

from exporters.deferred import Answer, Deferred
from exporters.http_messages import Response

logger = logging.getLogger(__name__)

Begin = Callable[[Callable[[bool, str], None]], None]

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
    """`begin` starts a reload and returns; it calls its argument once when the reload is over."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
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
            self._begin(self._over)
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
