"""Values of YAML scalars other than strings: null, booleans, numbers. The common part of YAML 1.1.

Surprising forms are left out: dates and base-60 numbers (`12:30`) stay strings. So does `1e9`, as in YAML 1.1.
"""

from __future__ import annotations

import re

from agent.lib.wording import shown

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_INTEGER = re.compile(
    r"([-+]?)(?:0b(?P<b>[01][01_]*)|0x(?P<x>[0-9a-fA-F][0-9a-fA-F_]*)|0(?P<o>[0-7][0-7_]*)|(?P<d>0|[1-9][0-9_]*))"
)
_BASES = {"b": 2, "x": 16, "o": 8, "d": 10}
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_LONGEST = 400
"""Most characters of a text that is examined as a number."""
_LARGEST = 2**63
_NUMERIC = frozenset("0123456789.+-")

Plain = str | int | float | bool | None


def resolve(text: str, tag: str = "") -> Plain:
    """Return what a plain scalar stands for. Raises ValueError for a whole number of more than 64 bits."""
    if text in NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if text[0] not in _NUMERIC or len(text) > _LONGEST:
        return text
    number = _integer(text)
    if number is None:
        if not _FLOAT.fullmatch(text):
            return text
        return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    return float(number) if tag == "!!float" else number


def fits(text: str, tag: str) -> bool:
    """Return whether a text can have this tag; any text may have no tag, or one that is not YAML's own."""
    if not tag.startswith("!!") or tag == "!!str":
        return True
    if tag == "!!null":
        return text in NULLS
    if tag == "!!bool":
        return text.lower() in ("true", "false") and text in _TRUTHS
    if tag == "!!merge":
        return text == "<<"
    if tag == "!!int":
        return _INTEGER.fullmatch(text) is not None
    return tag == "!!float" and (_FLOAT.fullmatch(text) or _INTEGER.fullmatch(text)) is not None


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    base = match.lastgroup or "d"
    number = int(match[1] + match[base].replace("_", ""), _BASES[base])
    if not -_LARGEST <= number < _LARGEST:
        raise ValueError(f"{shown(text, 40)} is too large for a number; put it in quotes if it is a string")
    return number
