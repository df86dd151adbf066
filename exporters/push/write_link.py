"""The connection to a remote write receiver, and what its answers mean.

Sources: https://prometheus.io/docs/specs/prw/remote_write_spec/. It allows to repeat what was answered with 5xx or 429.
The agent also repeats requests that were rejected for another reason than their content: an operator must correct the
login or the address, and until then the samples stay in the queue. VictoriaMetrics' agent does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError, HttpFault
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget

BOUNDS = AnswerBounds(body=64 * 1024)
SHOWN = 200
"""Most characters of a receiver's answer that are shown."""
NOT_ABOUT_CONTENT = frozenset({401, 403, 404, 407, 408, 421, 425, 429})
_LOGIN = (401, 403)
_HEADERS = (
    ("Content-Encoding", "snappy"),
    ("Content-Type", "application/x-protobuf"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
)
_TRUST = "; set ca_file to the issuer's certificate, or verify: false"


class WriteOutcome(Enum):
    """The result of a request."""

    TAKEN = auto()
    REFUSED = auto()
    """It is never going to be taken."""
    LATER = auto()


class WriteAnswer(NamedTuple):
    """An outcome, why, and how many seconds the receiver asks us to wait."""

    outcome: WriteOutcome
    text: str = ""
    wish: float = 0.0


class WriteLink:
    """The connection to one receiver. `clock` gives monotonic seconds. For one thread, except `abort`."""

    def __init__(self, target: HttpTarget, clock: Callable[[], float]) -> None:
        self._path = target.path
        self._client = HttpClient(target, BOUNDS, clock)

    def post(self, body: bytes, until: float) -> WriteAnswer:
        """Send a body, by a deadline on the monotonic clock. Never raises for what the receiver does."""
        kept = self._client.is_open
        try:
            answer = self._client.exchange(HttpRequest("POST", self._path, _HEADERS, body), until)
        except HttpError as error:
            if error.head is None:
                remedy = _TRUST if error.fault is HttpFault.UNTRUSTED else ""
                return WriteAnswer(WriteOutcome.LATER, f"{self._client.masked(str(error))}{remedy}")
            answer = error.head
        if answer.status in _LOGIN:
            self._client.close()
            if kept:  # the token or password may have changed since
                return self.post(body, until)
        return self._judged(answer)

    def close(self) -> None:
        self._client.close()

    def abort(self) -> None:
        """End an exchange under way, from another thread."""
        self._client.abort()

    def _judged(self, answer: HttpAnswer) -> WriteAnswer:
        status = answer.status
        if 200 <= status < 300:
            return WriteAnswer(WriteOutcome.TAKEN)
        content = answer.headers.get("location", "") if status < 400 else answer.body.decode("utf-8", "replace")
        text = f"HTTP status {status}: {self._client.masked(content)[:SHOWN].strip()}"
        if 400 <= status < 500 and status not in NOT_ABOUT_CONTENT:
            return WriteAnswer(WriteOutcome.REFUSED, text)
        return WriteAnswer(WriteOutcome.LATER, text, wished(answer.headers.get("retry-after", "")))


def wished(text: str) -> float:
    """Return seconds of a Retry-After header; 0 for anything but a number of seconds."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0
