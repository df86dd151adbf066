"""The connection to a receiver: what is posted, and what the answer means.

Only the status matters: it counts even if the body breaks off or is too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agent.lib.http_answers import AnswerBounds
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_outcomes import HttpAnswer, HttpError, HttpFault
from agent.lib.http_target import HttpTarget

BOUNDS = AnswerBounds(body=64 * 1024)
DENIED = (401, 403)
_JSON = (("Content-Type", "application/json"),)
_TRUST = "; set ca_file to the issuer's certificate, or verify: false"


class UnreachableError(Exception):
    """There was no answer, or none that is usable. The text says why."""


class ReceiverAnswer(NamedTuple):
    """A status, the text that came with it or the location of a redirect, and the server's date if there was one."""

    status: int
    text: str
    date: str = ""


class ReceiverLink:
    """The connection to a target's path. `clock` gives monotonic seconds. For one thread, except `abort`."""

    def __init__(self, target: HttpTarget, path: str, clock: Callable[[], float]) -> None:
        self._path = path
        self._client = HttpClient(target, BOUNDS, clock)

    def post(self, body: bytes, until: float) -> ReceiverAnswer:
        """Send JSON and read the answer, by a deadline on the monotonic clock. Raises UnreachableError."""
        kept = self._client.is_open
        answer = self._exchange(HttpRequest("POST", self._path, _JSON, body), until)
        if answer.status in DENIED:
            self._client.close()
            if kept:  # the token or password may have changed since
                return self.post(body, until)
        if 300 <= answer.status < 400:
            return ReceiverAnswer(answer.status, answer.headers.get("location", ""))
        return ReceiverAnswer(answer.status, answer.body.decode("utf-8", "replace"), answer.headers.get("date", ""))

    def _exchange(self, request: HttpRequest, until: float) -> HttpAnswer:
        try:
            return self._client.exchange(request, until)
        except HttpError as error:
            if error.head is not None:
                return error.head
            remedy = _TRUST if error.fault is HttpFault.UNTRUSTED else ""
            raise UnreachableError(f"{error}{remedy}") from error

    def close(self) -> None:
        self._client.close()

    def masked(self, text: str) -> str:
        """Text from the server, without what it repeats of the path and the login."""
        return self._client.masked(text)

    def abort(self) -> None:
        """End an exchange under way, from another thread."""
        self._client.abort()
