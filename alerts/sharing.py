"""Gives one object for equal ones while rules are loaded: thousands of rules name the same series, labels and texts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")


_MOST = 1024
"""Most objects of a kind that are remembered: if no two are equal, remembering all would take more than it saves."""


class Sharing:
    """What is shared in one load. It ends with the load, so that it keeps nothing that no rule has any more."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[object, dict[Any, Any]] = {}

    def one(self, value: T) -> T:
        """Return the first object of its type that equals this one, which must never change."""
        return self.made(lambda: value, type(value), value)

    def made(self, maker: Callable[[], V], kind: object, key: Hashable) -> V:
        """Return the object of a kind that was made for this key before; otherwise make it."""
        known = self._made.setdefault(kind, {})
        if key not in known:
            if len(known) >= _MOST:
                known.clear()
            known[key] = maker()
        found: V = known[key]
        return found
