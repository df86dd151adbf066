"""Numbers as Go's strconv parses them, and the constants of templates."""

from __future__ import annotations

import re

from alerts.template.quoting import character, quoted

_DECIMAL = re.compile(r"[+-]?(?:(?:[0-9](?:_?[0-9])*)(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9](?:_?[0-9])*)"
                      r"(?:[eE][+-]?[0-9](?:_?[0-9])*)?")  # fmt: skip
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX]_?((?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?(?:\.(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?)?)[pP]([+-]?[0-9]+)"
)
_ODD = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_WHOLE = re.compile(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]?((?:_?[0-7])+)|(0|[1-9](?:_?[0-9])*))"
)
_BASES = (16, 2, 8, 10)
_LONGEST = 1000
"""Most digits of a number that are read."""


def parse_float(text: str) -> float:
    """Go's strconv.ParseFloat. Raises ValueError with its words."""
    plain = text.replace("_", "")
    if _ODD.fullmatch(text):
        return float(text)
    if _DECIMAL.fullmatch(text):
        value = float(plain)
    elif match := _HEXADECIMAL.fullmatch(text):
        if not any(letter not in "._" for letter in match[2]):
            raise _wrong(text, "invalid syntax")
        try:
            value = float.fromhex(f"{match[1]}0x{match[2].replace('_', '')}p{match[3]}")
        except OverflowError:
            value = float("inf")
    else:
        raise _wrong(text, "invalid syntax")
    if abs(value) == float("inf"):
        raise _wrong(text, "value out of range")
    return value


def _wrong(text: str, why: str) -> ValueError:
    return ValueError(f"strconv.ParseFloat: parsing {quoted(text)}: {why}")


def whole(text: str) -> int | None:
    """A whole number, perhaps with the prefix of a base; None if the text is not one."""
    match = _WHOLE.fullmatch(text)
    if match is None or len(text) > _LONGEST:
        return None
    digits, base = next((digits, base) for digits, base in zip(match.groups()[1:], _BASES, strict=True) if digits)
    value = int(digits.replace("_", ""), base)
    return -value if match[1] == "-" else value


def constant(text: str) -> tuple[int | float | complex | None, int | None]:
    """A constant's value, and its value as a whole number if it has one. Raises ValueError.

    The value of a whole number that does not fit into Go's int is None: using it is an error of the rendering.
    """
    if text.startswith("'"):
        code = character(text)
        return code, code
    if text.endswith("i"):
        return _imaginary(text), None
    number = whole(text)
    if number is not None and -(2**63) <= number < 2**64:
        if text.startswith("+") and number >= 2**63:
            raise ValueError(f"{text} overflows a 64-bit integer; write a float")
        value = number if number < 2**63 else None
        return (value, value)
    try:
        real = parse_float(text)
    except ValueError as error:
        is_large = "out of range" in str(error)
        raise ValueError(f"{text} overflows a 64-bit float" if is_large else f"{text!r} is not a number") from None
    if not any(mark in text for mark in ".eEpP") or number is not None:
        raise ValueError(f"{text} overflows a 64-bit integer; write a float")
    return real, int(real) if real == int(real) and abs(real) < 2**63 else None


def _imaginary(text: str) -> complex:
    cut = max(text.rfind("+"), text.rfind("-"))
    if cut > 0 and text[cut - 1] in "eEpP" and "x" not in text.lower()[:cut]:
        cut = max(text.rfind("+", 0, cut), text.rfind("-", 0, cut))
    try:
        if cut > 0:
            return complex(parse_float(text[:cut]), parse_float(text[cut:-1]))
        return complex(0, parse_float(text[:-1]))
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
