"""Shows progress on a terminal for work that takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

PATIENCE_SECONDS = 1.0
"""Seconds before the first line: most work is done by then."""
EVERY_SECONDS = 0.2
"""Seconds between two lines."""


class Progress:
    """One line that is written over itself and gone at the end; nothing where `stream` is no terminal.

    `now` gives seconds, `total` is the number of steps, 0 if unknown, and the clock is read once in `every` steps. Use
    it in a `with` statement.
    """

    def __init__(
        self, what: str, total: int, now: Callable[[], float], stream: TextIO | None = None, every: int = 64
    ) -> None:
        self._every = every
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream is not None and self._stream.isatty()
        self._what, self._total, self._now = what, total, now
        self._done = 0
        self._next = now() + PATIENCE_SECONDS
        self._width = 0

    def __enter__(self) -> Progress:  # noqa: PYI034 Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("")

    def step(self, where: Callable[[], str] = str) -> None:
        """One step is done; `where` gives more words, if it is time to say anything."""
        self._done += 1
        if self._done % self._every == 0 and self._is_due():
            share = f"{100 * self._done // self._total} %" if self._total else str(self._done)
            self._write(f"{self._what}: {share} {where()}".rstrip()[:78])

    def reached(self, share: float) -> None:
        """Note that this share of everything is done, 0 to 1: for what counts its steps itself."""
        if self._is_due():
            self._write(f"{self._what}: {share:.0%}")

    def grown(self, size: Callable[[], str]) -> None:
        """Note that a piece is written to a file that is this large now."""
        if self._is_due():
            self._write(f"{self._what}: {size()}")

    def _is_due(self) -> bool:
        if not self._is_shown or (now := self._now()) < self._next:
            return False
        self._next = now + EVERY_SECONDS
        return True

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text:<{self._width}}" + ("" if text else "\r"))
        self._stream.flush()
        self._width = max(self._width, len(text))
