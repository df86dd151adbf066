"""The values of numbers, durations and quoted strings, as Go and Prometheus parse them.

Invalid ones are a ValueError with Prometheus's text.
"""

from __future__ import annotations

import json
import math
import re

_SIGNED_LIMIT = 2**63
_WORDS = {"inf": math.inf, "nan": math.nan}
# Underscores may be between digits and after a prefix. A leading 0 makes a whole number octal.
_HEXADECIMAL = re.compile(r"0[xX]_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*")
_OCTAL = re.compile(r"0_?[0-7]+(?:_[0-7]+)*")
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_DECIMAL = re.compile(rf"(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")

_SECOND = 1_000_000_000
_UNITS = {"y": 31_536_000 * _SECOND, "w": 604_800 * _SECOND, "d": 86_400 * _SECOND, "h": 3600 * _SECOND,
          "m": 60 * _SECOND, "s": _SECOND, "ms": 1_000_000}  # fmt: skip
_ORDER = {unit: position for position, unit in enumerate(_UNITS)}
_COUNT_AND_UNIT = re.compile(r"([0-9]+)([^0-9]*)")

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_BYTES = re.compile("[\ud800-\udfff]")
_CONTROLS = {"a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}


def quoted(text: str) -> str:
    """Return a text in double quotes, for errors."""
    return json.dumps(readable(text), ensure_ascii=False)


def readable(text: str) -> str:
    """Return a text of a query in printable form: U+FFFD stands for bytes that are not UTF-8."""
    return text if is_text(text) else text.encode(errors="surrogateescape").decode(errors="replace")


def is_text(text: str) -> bool:
    """Return whether a text is UTF-8, and so can be a label's name or value: its escapes may make any bytes."""
    return text.isascii() or not _BYTES.search(text)


def number_value(written: str) -> float:
    """Return the value of a number without a sign: `1_000`, `0x1F`, `017` (octal), `.5`, `1e3`, `Inf`, `NaN`."""
    value = float(written) if written.isdigit() and written[0] != "0" else _unusual(written)
    if math.isinf(value) and written[0] in "0123456789.":
        raise ValueError(f"error parsing number: strconv.ParseFloat: parsing {quoted(written)}: value out of range")
    return value


def _unusual(written: str) -> float:
    word = _WORDS.get(written.lower())
    if word is not None:
        return word
    digits = written.replace("_", "")
    for pattern, base in ((_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(written):
            whole = int(digits, base)
            if whole < _SIGNED_LIMIT:
                return float(whole)
    if not _DECIMAL.fullmatch(written):
        raise ValueError(f"error parsing number: strconv.ParseFloat: parsing {quoted(written)}: invalid syntax")
    return float(digits)


def duration_value(written: str) -> float:
    """Return the seconds of a duration such as `1h30m`: whole numbers with units, the largest first."""
    total, before = 0, -1
    if written.startswith("."):
        raise ValueError(f"not a valid duration string: {quoted(written)}")
    for count, unit in _COUNT_AND_UNIT.findall(written):
        if unit not in _UNITS:
            raise ValueError(f"unknown unit {quoted(unit)} in duration {quoted(written)}")
        if _ORDER[unit] <= before:
            raise ValueError(f"not a valid duration string: {quoted(written)}")
        before = _ORDER[unit]
        # Twenty digits are out of range in any unit, and Python refuses to parse thousands of them.
        digits = count.lstrip("0") or "0"
        total += (int(digits) if len(digits) < 20 else _SIGNED_LIMIT) * _UNITS[unit]
        if total >= _SIGNED_LIMIT:
            raise ValueError("duration out of range")
    whole, rest = divmod(total, _SECOND)
    return whole + rest / 1e9


def nanoseconds(seconds: float) -> int:
    """Return a number of seconds as a duration in nanoseconds: 64 bits hold about 292 years."""
    if seconds != seconds:
        return -_SIGNED_LIMIT  # the result on x86-64; only an offset can be NaN
    scaled = seconds * 1e9
    if not abs(scaled) < _SIGNED_LIMIT:
        raise ValueError("duration out of range")
    return int(math.copysign(math.floor(abs(scaled) + 0.5), scaled))


def unquoted(written: str) -> str:
    """Return the text between quotes with its escapes resolved, as in Go: `\\x` and octal ones are single bytes.

    Bytes that are not UTF-8 are kept as Python keeps those of file names, as halves of surrogate pairs.
    """
    body = written[1:-1]
    if written[0] == "`" or "\\" not in body:
        return body
    made = bytearray()
    last = 0
    for found in _ESCAPE.finditer(body):
        made += body[last : found.start()].encode()
        made += _resolved(found)
        last = found.end()
    made += body[last:].encode()
    return made.decode(errors="surrogateescape")


def _resolved(escape: re.Match[str]) -> bytes:
    byte, octal, short, long, character = escape.groups()
    if byte or octal:
        return bytes((int(byte, 16) if byte else int(octal, 8),))
    if short or long:
        return chr(int(short or long, 16)).encode()
    return _CONTROLS.get(character) or str(character).encode()
