"""The checks, in the order in which they run: one boot for all, so what one leaves behind the next one finds."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[], str]
"""Does something and says what it saw. Raises CheckError."""
CHECKS: list[tuple[str, Check]] = []


def check(name: str) -> Callable[[Check], Check]:
    """Enter a function into the table."""

    def enter(function: Check) -> Check:
        CHECKS.append((name, function))
        return function

    return enter
