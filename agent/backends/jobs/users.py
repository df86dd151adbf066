"""Names of users, looked up once for each.

A lookup may query a directory server and never return, so it runs in a separate thread; it is waited for briefly, so
that a job is rarely shown with its user's number first.
"""

from __future__ import annotations

import pwd
import threading
from collections.abc import Callable
from math import inf

from agent.backends.jobs.job import legible

RETRY_SECONDS = 600.0
"""Seconds after which a user without a name is looked up again."""
MOST = 4096
PATIENCE_SECONDS = 0.5
"""Seconds to wait for a name, once; after that it comes with a later look."""


def system_name(uid: int) -> str:
    """The name in the system's user database. Raises KeyError if it has none."""
    return pwd.getpwuid(uid).pw_name


class Users:
    """`lookup` gives a user's name or raises KeyError or OSError; it is called in a thread of its own."""

    def __init__(self, lookup: Callable[[int], str] = system_name, patience: float = PATIENCE_SECONDS) -> None:
        self._lookup = lookup
        self._patience = patience
        self._lock = threading.Lock()
        self._names: dict[int, tuple[str, float]] = {}
        self._wanted: dict[int, float] = {}
        """Users who are still to be looked up, and since when."""
        self._idle = threading.Event()
        self._idle.set()

    def name(self, uid: int, mono: float) -> str:
        """The user's name, or "" if it is not known, or not yet."""
        with self._lock:
            name, until = self._names.get(uid, ("", -inf))
            if mono < until or uid in self._wanted:
                return name
            if len(self._wanted) >= MOST:
                return ""
            self._wanted[uid] = mono
            behind = not self._idle.is_set()
            self._idle.clear()
        if behind:
            return ""  # an earlier question has no answer yet: this one waits behind it
        try:
            threading.Thread(target=self._ask, name="coldplate-users", daemon=True).start()
        except RuntimeError:  # no thread can be started: the next look asks again
            with self._lock:
                self._wanted.clear()
                self._idle.set()
            return ""
        self._idle.wait(self._patience)
        with self._lock:
            return self._names.get(uid, ("", -inf))[0]

    def _ask(self) -> None:
        """Look up all who are waiting, and end."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._idle.set()
                    return
                uid, mono = next(iter(self._wanted.items()))
            known = self._asked(uid, mono)
            with self._lock:
                del self._wanted[uid]
                if len(self._names) >= MOST:
                    self._names.clear()
                self._names[uid] = known

    def _asked(self, uid: int, mono: float) -> tuple[str, float]:
        try:
            return legible(self._lookup(uid)), inf
        except (KeyError, OSError, OverflowError):
            return "", mono + RETRY_SECONDS
