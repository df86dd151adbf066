"""Logs a problem once, and its end once, however often it occurs in between."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from types import TracebackType

QUIET_SECONDS = 60.0
"""Seconds after which a problem that has not occurred again is over."""


class Complaints:
    """The current problems. `now` is always by the same clock, in seconds."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._last: dict[Hashable, float] = {}
        self._relief: dict[Hashable, str] = {}

    def say(self, now: float, key: Hashable, text: str, *args: object, relief: str) -> None:
        """Log a warning, unless it was already logged; `relief` is logged when it is over."""
        if key not in self._last:
            self._logger.warning(text, *args)
        self._last[key] = now
        self._relief[key] = relief

    def defect(self, now: float, error: BaseException, text: str, *args: object) -> None:
        """Log a defect in our code, with its traceback, once for each place in the code. It never counts as over."""
        key = type(error), *_place(error.__traceback__)
        if key not in self._last:
            self._logger.error(text, *args, exc_info=error)
        self._last[key] = now

    def ease(self, now: float) -> None:
        """Forget what has not occurred for a while."""
        for key in [key for key, last in self._last.items() if now - last >= QUIET_SECONDS]:
            del self._last[key]
            relief = self._relief.pop(key, None)
            if relief is not None:
                self._logger.info(relief)


def _place(trace: TracebackType | None) -> tuple[str, int]:
    """File and line where an error came from."""
    place = ("", 0)
    while trace is not None:
        place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return place
