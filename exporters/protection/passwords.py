"""Checks passwords against their bcrypt hashes, in a thread of its own: one check takes 50 ms and more.

A password that was accepted once is accepted at once from then on: a scraper pays for its first request only. From the
answer and its time a client can learn only whether user and password together are right: for an unknown user the
checker computes another hash, as costly as one of the file's, and it keeps nothing of wrong passwords.

Guessing takes at most a quarter of a processor: the thread pauses after each wrong password. Addresses take turns, and
each has few places in the queue, so that an address that guesses does not delay the others.
"""

import base64
import binascii
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from agent.lib.threads import KeptThread, Threads
from exporters.deferred import Answer, Deferred
from exporters.gate import PASS
from exporters.http_messages import Response

log = logging.getLogger("coldplate.web")

DENIED = Response(
    HTTPStatus.UNAUTHORIZED,
    b"unauthorized: give a user name and a password\n",
    headers=(("WWW-Authenticate", 'Basic realm="coldplate", charset="UTF-8"'),),
)
CROWDED = Response(
    HTTPStatus.SERVICE_UNAVAILABLE, b"too many passwords are being checked\n", headers=(("Retry-After", "1"),)
)
MOST_KNOWN = 1024
"""Logins that are remembered as right."""
MOST_ADDRESSES, MOST_OF_ONE = 64, 4
"""Addresses whose passwords wait to be checked, and how many of each."""
REST = 3.0
"""The pause after a wrong password, as a multiple of the time of its check."""
MOST_REST_SECONDS = 1.0
_LONGEST = 72
"""Bytes of a password that bcrypt looks at; programs that make hashes leave the rest out without a word."""
_FILLING = "abcdefghijklmnopqrstuu" + "." * 31


class _PendingCheck(NamedTuple):
    """A login to be checked; `key` None: its user is unknown, so whatever the check says, it is wrong."""

    key: bytes | None
    hashed: bytes
    password: bytes
    answer: Deferred


class PasswordChecks:
    """`check` is for the server's thread. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = os.urandom(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[_PendingCheck]] = OrderedDict()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: KeptThread | None = None

    def start(self, threads: Threads) -> None:
        self._thread = threads.begin("passwords", self.run)

    def stop(self, seconds: float) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def check(self, users: Mapping[str, str], header: str, peer: str) -> Answer | None:
        """Return None if a request with this Authorization header may go on; else its answer, or a promise of it."""
        login = login_of(header)
        if login is None:
            return DENIED
        user, password = login
        hashed = users.get(user)
        mark = self._mark(user, hashed or "", password)
        with self._lock:
            if hashed is not None and mark in self._known:
                self._known.move_to_end(mark)
                return None
            key: bytes | None = mark
            if hashed is None:
                key, hashed = None, self._dummy_hash(users, user)
            return self._queue(_PendingCheck(key, hashed.encode(), password[:_LONGEST], Deferred(late=CROWDED)), peer)

    def run(self) -> None:
        while not self._stopping.is_set():
            pending = self._next()
            if pending is None:
                self._wake.wait()
                self._wake.clear()
                continue
            began = self._clock()
            if self._answer_login(pending):
                continue
            self._stopping.wait(min((self._clock() - began) * REST, MOST_REST_SECONDS))

    def _queue(self, pending: _PendingCheck, peer: str) -> Answer:
        mine = self._waiting.get(peer)
        if mine is None:
            if len(self._waiting) >= MOST_ADDRESSES:
                return CROWDED
            mine = self._waiting[peer] = deque()
        for abandoned in [check for check in mine if check.answer.abandoned]:
            mine.remove(abandoned)
        if len(mine) >= MOST_OF_ONE:
            return CROWDED
        mine.append(pending)
        self._wake.set()
        return pending.answer

    def _next(self) -> _PendingCheck | None:
        """Return the first of the address whose turn it is; the others of that address wait for its next turn."""
        with self._lock:
            while self._waiting:
                peer, mine = self._waiting.popitem(last=False)
                while mine:
                    pending = mine.popleft()
                    if not pending.answer.abandoned:
                        if mine:
                            self._waiting[peer] = mine
                        return pending
        return None

    def _answer_login(self, pending: _PendingCheck) -> bool:
        """Answer a login; returns whether it is right."""
        with self._lock:
            right = pending.key is not None and pending.key in self._known
        if not right:
            right = _matches(pending.password, pending.hashed) and pending.key is not None
        if right and pending.key is not None:
            with self._lock:
                self._known[pending.key] = None
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
        pending.answer.answer(PASS if right else DENIED)
        return right

    def _mark(self, *parts: str | bytes) -> bytes:
        """Return what a login is remembered by: it says nothing of the password without this process's secret."""
        import hashlib  # brings 0.7 MiB of OpenSSL, which a daemon without passwords does not need

        mark = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in parts:
            data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
            mark.update(len(data).to_bytes(4, "big") + data)
        return mark.digest()

    def _dummy_hash(self, users: Mapping[str, str], user: str) -> str:
        """Return a hash that no password has, always the same for an unknown user, and as costly as some user's."""
        costs = sorted(hashed.rpartition("$")[0].rpartition("$")[2] for hashed in users.values())
        chosen = int.from_bytes(self._mark("cost", user)[:8], "big") % len(costs)
        return f"$2b${costs[chosen]}${_FILLING}"


def login_of(header: str) -> tuple[str, bytes] | None:
    """Return user and password of an Authorization header (RFC 7617); None if it has no valid ones."""
    scheme, _, coded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user.decode("utf-8", "surrogateescape"), password) if colon else None


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # costs memory, so it is loaded only where passwords are asked for

    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:  # a salt or a password that the library does not take
        return False
