"""Where a number or duration in a query ends.

Prometheus accepts more as a number here than it can parse afterwards (`5e `, `0x`), and what is not a number is tried
as a duration from where the number stopped.
"""

from __future__ import annotations

import re

_DECIMAL_DIGITS = "0123456789"
_HEXADECIMAL_DIGITS = "0123456789abcdefABCDEF"
_EXPONENT = "eE"
_NOT_AFTER_MARK = "._eE"
_UNITS = re.compile(r"[smhdwy]s?(?:[0-9]+[smhdw]s?)*")
_WORD = re.compile(r"[0-9A-Za-z_]")


def scan_numeral(text: str, start: int) -> tuple[str, int]:
    """Return "number" or "duration", or "" for neither, and where it ends or cannot go on."""
    end, is_number = _number(text, start)
    if is_number and not _WORD.match(text, end):
        return "number", end
    units = _UNITS.match(text, end)
    if units is not None and not _WORD.match(text, units.end()):
        return "duration", units.end()
    return "", end if units is None else units.end()


def _number(text: str, start: int) -> tuple[int, bool]:
    """Return where a number ends, and whether it is valid up to there."""
    at, digits = start, _DECIMAL_DIGITS
    if text[at] == "0":
        at += 1
        if text[at : at + 1] in ("x", "X"):
            at += 1
            digits = _HEXADECIMAL_DIGITS
            at += text[at : at + 1] == "_"
    at += text[at : at + 1] == "."
    at += _is_one(text, at, digits)
    dot = exponent = False
    while _is_one(text, at, digits + "._eE"):
        mark = text[at]
        if (mark == "." and dot) or (mark in _EXPONENT and exponent):
            return at + 1, False
        if mark == ".":
            dot = True
            at += 1
            if _is_one(text, at, "_."):
                return at + 1, False
            if digits is _HEXADECIMAL_DIGITS:
                return at, False
        elif mark in _EXPONENT or mark == "_":
            at += 1
            if mark != "_":
                exponent = True
                at += _is_one(text, at, "+-")
            if _is_one(text, at, _NOT_AFTER_MARK):
                return at + 1, False
            if at >= len(text):
                return at, False
        else:
            while _is_one(text, at, digits):
                at += 1
    return at, True


def _is_one(text: str, at: int, characters: str) -> bool:
    return at < len(text) and text[at] in characters
