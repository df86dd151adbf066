"""Durations as Prometheus writes them in rule files (`1m30s`, `2h`, `0`), in seconds.

Not the configuration's quantities: those allow fractions and one unit, these allow several units and no
fraction.
"""

import re

from agent.lib.wording import shown

UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds, from the longest unit to the shortest: the order in which they must be written."""
_SHAPE = re.compile("".join(rf"(?:0*(?P<{unit}>[0-9]{{1,20}}){unit})?" for unit in UNITS))
_WHOLE = ("y", "w")  # used only if nothing is left over: 90d reads better than 12w6d
LONGEST = 2**63 // 1_000_000
"""The longest, in milliseconds: Go counts nanoseconds in 64 bits."""


def milliseconds(text: str) -> int | None:
    """Return the milliseconds of a duration, however long it is; None of another text."""
    match = _SHAPE.fullmatch(text)
    return None if match is None else sum(int(match[unit] or 0) * factor for unit, factor in UNITS.items())


def parse(text: str) -> float:
    """Return seconds of a duration. Raises ValueError with the remedy."""
    if text == "0":
        return 0.0
    total = milliseconds(text)
    if not text or total is None:
        raise ValueError(
            f"{shown(text)} is not a duration; write whole numbers with units, largest first, such as 90s or 1h30m"
        )
    if total > LONGEST:
        raise ValueError(f"{shown(text)} is too long a duration; the longest is 292y")
    return total / 1000


def show(seconds: float) -> str:
    """Return a duration as Prometheus prints it."""
    remaining = round(seconds * 1000)
    if remaining == 0:
        return "0s"
    parts = []
    for unit, factor in UNITS.items():
        if unit in _WHOLE and remaining % factor:
            continue
        count, remaining = divmod(remaining, factor)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
