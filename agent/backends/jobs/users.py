"""Names of users, asked once for each: a lookup may go to a directory server and take its time."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from math import inf

from agent.backends.jobs.job import legible

RETRY = 600.0
"""Seconds for which a user without a name is left in peace."""
MOST = 4096


def system_name(uid: int) -> str:
    """The name by the system's user database. Raises KeyError when it has none."""
    return pwd.getpwuid(uid).pw_name


class Users:
    """`lookup` gives a user's name or raises KeyError or OSError."""

    def __init__(self, lookup: Callable[[int], str] = system_name) -> None:
        self._lookup = lookup
        self._names: dict[int, tuple[str, float]] = {}

    def name(self, uid: int, mono: float) -> str:
        """The user's name, or "" when nobody knows it."""
        name, until = self._names.get(uid, ("", -inf))
        if mono < until:
            return name
        if len(self._names) >= MOST:
            self._names.clear()
        try:
            known = legible(self._lookup(uid)), inf
        except (KeyError, OSError, OverflowError):
            known = "", mono + RETRY
        self._names[uid] = known
        return known[0]
