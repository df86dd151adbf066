"""Where a recording comes from: the header of each of its segments."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from agent.model import Instant

HEADER_BYTES = 256 * 2**10
TEXT = 64 * 2**10
"""Characters of a text in a header that a reader takes."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known of a recording before its first snapshot. Texts are empty where there is no such thing.

    `wall` and `mono` are when it began, in seconds on both clocks, `interval` the seconds between two snapshots.
    `maker` says what recorded, `command` what ran meanwhile, `job` the job's id. `scenario` names what synthetic
    devices played. `redacted` says that what identifies people and machines was replaced.
    """

    coldplate: str
    node: str
    wall: float
    mono: float
    interval: float
    maker: str = ""
    command: tuple[str, ...] = ()
    job: str = ""
    scenario: str = ""
    redacted: bool = False

    @property
    def began(self) -> Instant:
        """When it began, on both clocks."""
        return Instant(self.mono, self.wall)


def encoded(header: Provenance) -> bytes:
    """As it stands in the file: JSON, not compressed, for whoever looks at a file with a pager."""
    return json.dumps(asdict(header), separators=(",", ":")).encode()


def decoded(payload: bytes) -> Provenance:
    """The header in a payload; members that this version does not know are passed over. Raises ValueError."""
    if len(payload) > HEADER_BYTES:
        raise ValueError("its header is too long")
    try:
        document = json.loads(payload)
        known = {each.name: document[each.name] for each in fields(Provenance) if each.name in document}
        return Provenance(**{name: _checked(name, value) for name, value in known.items()})
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise ValueError(f"its header is not understood: {type(error).__name__}: {error}") from None


def _checked(name: str, value: Any) -> Any:
    if name in ("wall", "mono", "interval"):
        if type(value) not in (int, float) or not isfinite(value):
            raise ValueError(f"{name} is not a time")
        return float(value)
    if name == "redacted":
        return value is True
    if name == "command":
        return tuple(_text(each) for each in value)
    return _text(value)


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > TEXT:
        raise ValueError("a text is none, or too long")
    return value
