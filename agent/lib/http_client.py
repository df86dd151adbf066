"""Asks one HTTP server and waits for its answer: every exchange ends at its deadline, whatever the server does.

A timeout of the socket would restart with every byte, so that a server that trickles could hold it forever; here the
remaining time is set before each wait. Only looking up the server's name cannot be cut short.
"""

import contextlib
import os
import select
import socket
from collections.abc import Callable
from math import ceil, inf

from agent.lib.certificates import HttpTrust
from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError, HttpFault
from agent.lib.http_link import HttpLink, HttpRequest, Place
from agent.lib.http_target import HttpTarget

DENIED = (401, 403)
"""Statuses of a refused login."""
_TRUST = "; set ca_file to the issuer's certificate, or verify: false"


def jitter() -> float:
    """Return a random number from 0 to 1 for pauses between attempts, without the memory of the module `random`."""
    return os.urandom(1)[0] / 255


class HttpClient:
    """A client of one target. `clock` gives monotonic seconds. For one thread, except `abort`.

    `silence` is the number of seconds for which the server may send nothing at all.
    """

    def __init__(
        self, target: HttpTarget, bounds: AnswerBounds, clock: Callable[[], float], silence: float = inf
    ) -> None:
        self._target = target
        self._clock = clock
        self._silence = silence
        trust = HttpTrust(target) if target.tls else None
        self._link = HttpLink(self._find, target, trust, bounds)

    def exchange(self, request: HttpRequest, until: float) -> HttpAnswer:
        """Send a request and read the answer, by a deadline on the monotonic clock. Raises HttpError."""
        began = self._clock()
        if self._link.is_open and self._wait(0.0):  # the server may have closed it since, or sent something unasked
            with contextlib.suppress(HttpError):
                self._link.advance()
        try:
            answer = self._link.begin(request)
            while answer is None:
                if self._is_ready(began, until):
                    answer = self._link.advance()
                else:
                    self._link.skip()
        except BaseException:
            self._link.close()
            raise
        return answer

    def deliver(self, request: HttpRequest, until: float) -> HttpAnswer:
        """Send a request of whose answer only the status matters: it counts even if the body breaks off.

        After a refused login the request is sent again over a new connection: the token or password may have
        changed since the last one was opened. Raises HttpError.
        """
        kept = self._link.is_open
        try:
            answer = self.exchange(request, until)
        except HttpError as error:
            if error.head is None:
                raise
            answer = error.head
        if answer.status in DENIED:
            self.close()
            if kept:
                return self.deliver(request, until)
        return answer

    def explain(self, error: HttpError) -> str:
        """Return why there is no answer, with the remedy, and without what the server repeats of secrets."""
        return self.masked(str(error)) + (_TRUST if error.fault is HttpFault.UNTRUSTED else "")

    def close(self) -> None:
        """Close the connection; the next exchange opens a new one."""
        self._link.close()

    def abort(self) -> None:
        """End an exchange under way, from another thread."""
        self._link.abort()

    def masked(self, text: str) -> str:
        """Return text from the server, without what it repeats of the target's path and the login."""
        return self._link.masked(text, self._target.path)

    def _find(self) -> Place:
        """Return the server, with its current addresses. Raises HttpError."""
        target = self._target
        try:
            entries = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            text = f"{target.host}: {getattr(error, 'strerror', None) or error}"
            raise HttpError(HttpFault.UNREACHABLE, text) from error
        return Place(target.host, target.port, tuple(dict.fromkeys(_address(entry[4]) for entry in entries)))

    def _is_ready(self, began: float, until: float) -> bool:
        """Wait for the server; False if the next address should be tried. Raises HttpError."""
        remaining = until - self._clock()
        if remaining <= 0:
            raise self._late(until - began)
        share = remaining / (self._link.untried + 1) if self._link.is_connecting else remaining
        if self._wait(min(share, self._silence)):
            return True
        if self._link.is_connecting and self._link.untried:
            return False
        raise self._late(self._silence if self._silence < remaining else until - began)

    def _late(self, waited: float) -> HttpError:
        text = f"no response within {waited:.3g} s" if waited > 0 else "no time was left to ask"
        error = HttpError(HttpFault.TIMEOUT, text)
        error.head = self._link.head
        return error

    def _wait(self, seconds: float) -> bool:
        """Wait until the connection is ready; return whether it is."""
        poll = select.poll()
        poll.register(self._link, self._link.events)
        return bool(poll.poll(ceil(seconds * 1000)))


def _address(entry: tuple[object, ...]) -> str:
    """Return the address as text; a link-local IPv6 address with its interface."""
    scope = entry[3] if len(entry) == 4 else 0
    return f"{entry[0]}%{scope}" if scope and "%" not in str(entry[0]) else str(entry[0])
