"""How bad an NVLink 5 error is (XID 144 to 150, Blackwell and later): the driver's log line says it, not the code.

    149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 ...)

The line has the unit, a word, and registers: the first describes the interrupt, the second is the unit's error status.
Source: NVIDIA's Xid catalog, sheet "XID 144-150 Decode". It asks for a reset after whatever is fatal to the GPU or to
the link, and for nothing, or for the application's restart, after the rest.
"""

from __future__ import annotations

import re
from enum import Enum


class Grade(Enum):
    """What the line says."""

    FATAL = "fatal"
    NONFATAL = "nonfatal"


_PREFIXES = {144: "SAW", 145: "RLW", 146: "TLW", 147: "TREX", 148: "NVLPW", 149: "NETIR", 150: "MSE"}
"""How the names of a code's units begin."""

_LINE = re.compile(
    r"\b([A-Z][A-Z0-9_/]{2,40}) {1,8}(Fatal|Nonfatal)\b"
    r"(?:[^()]{0,60}\((0x[0-9a-fA-F]{1,8}) (0x[0-9a-fA-F]{1,8}))?"
)

_RESET_BITS = {
    "SAW_MVB": 0x12,
    "RLW_REMAP": 0xC0,
    "RLW_RSPCOL": 0x2,
    "RLW_SRC_TRACK": 0x31,
    "RLW_TAGSTATE": 0x12_0002,
    "TLW_CTRL": 0x4,
    "TLW_RX": 0x4,
    "TLW_TX": 0x4,
}
"""Bits of the error status after which the catalog asks for a reset, by the unit's name without its pipe."""

_LINK_EVENTS = ("NETIR_LINK_EVT", "NETIR_LINK_DOWN")
"""A link went down; the name before driver R575, and since."""
_HARMLESS_DOWNS = frozenset({0x26, 0x28})
"""Reasons of a link that is down for which the catalog asks for no reset: software or a user on the peer, and the host.
The reason is in bits 20 to 25 of the first register."""


def grade_of(code: int, text: str) -> Grade | None:
    """What a log line says of an error; None if it is no line of such a code, or cannot be read."""
    prefix = _PREFIXES.get(code)
    if prefix is None:
        return None
    # The name of a process stands before the unit, and may be anything: the last match is the driver's.
    found = [match for match in _LINE.finditer(text) if match[1].startswith(prefix)]
    if not found:
        return None
    unit, word, interrupt, status = found[-1].groups()
    if interrupt is None:
        return Grade.FATAL if word == "Fatal" else Grade.NONFATAL
    is_fatal = _is_fatal(unit, word == "Fatal", int(interrupt, 16), int(status, 16))
    return Grade.FATAL if is_fatal else Grade.NONFATAL


def _is_fatal(unit: str, is_called_fatal: bool, interrupt: int, status: int) -> bool:
    """The graver of the driver's word and the catalog's line for the error status."""
    if unit.startswith(_LINK_EVENTS):
        return is_called_fatal and (interrupt >> 20) & 0x3F not in _HARMLESS_DOWNS
    if unit == "RLW_RXPIPE" and status & 0x7:
        return is_called_fatal or _is_promoted(interrupt)
    return is_called_fatal or bool(status & _RESET_BITS.get(unit.split("_PIPE")[0], 0))


def _is_promoted(interrupt: int) -> bool:
    """Whether an error of RLW_RXPIPE was made fatal: the bit after the unit's number, which R575 moved."""
    if interrupt & 0x3FF == 0x0C2:
        return bool(interrupt & 0x400)
    return interrupt & 0x7F == 0x06 and bool(interrupt & 0x80)
