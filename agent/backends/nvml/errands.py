"""Calls into the library that may never return: each in its own thread, and never two with the same name at a time.

A thread that hangs in the driver cannot be killed. It is kept, and no other is started for it, until it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class Errands:
    """Makes calls in threads, and knows which of them are still in flight."""

    def __init__(self) -> None:
        self._out: set[str] = set()
        self._back = threading.Condition()

    def send(self, name: str, call: Callable[[], None]) -> bool:
        """Make the call in a thread; False if one of that name is still in flight, or no thread can be started."""
        with self._back:
            if name in self._out:
                return False
            self._out.add(name)
        try:
            threading.Thread(target=self._run, args=(name, call), name=name, daemon=True).start()
        except (RuntimeError, MemoryError):
            self._returned(name)
            return False
        return True

    def is_out(self, name: str) -> bool:
        """Whether the call of that name has not returned yet."""
        return name in self._out

    @property
    def busy(self) -> bool:
        """Whether any call has not returned yet."""
        return bool(self._out)

    def wait(self, names: Iterable[str], patience: float) -> None:
        """Wait until all of these have returned, for at most `patience` seconds in all."""
        awaited = set(names)
        with self._back:
            self._back.wait_for(lambda: not awaited & self._out, patience)

    def _run(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._returned(name)

    def _returned(self, name: str) -> None:
        with self._back:
            self._out.discard(name)
            self._back.notify_all()
