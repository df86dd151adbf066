"""Runs a part's work in a shared thread: a failure affects only that part, and is logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger("coldplate")

T = TypeVar("T")


class Isolation:
    """Remembers what was logged of each part."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def run(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """The result of the work, or `otherwise` if it fails; `what` describes it in the log."""
        try:
            return work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._told.get(what) != text:
                self._told[what] = text
                log.exception("%s failed", what)
            return otherwise
