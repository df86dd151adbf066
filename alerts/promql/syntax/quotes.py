"""Where a quoted string in a query ends, and the error if it does not."""

from __future__ import annotations

import re

_PLAIN = {'"': re.compile(r'[^"\\\n\ufffd]*'), "'": re.compile(r"[^'\\\n\ufffd]*"), "`": re.compile(r"[^`\ufffd]*")}
_DIGITS = {"x": (2, 16, 255), "u": (4, 16, 0x10FFFF), "U": (8, 16, 0x10FFFF)}
_OCTAL = (3, 8, 255)
_SURROGATES = range(0xD800, 0xE000)


def scan_quoted(text: str, start: int) -> int:
    """Return where the text with its opening quote at `start` ends. Raises ValueError with Prometheus's words.

    Queries must not contain U+FFFD, which stands for what was not UTF-8.
    """
    quote = text[start]
    at = start + 1
    while True:
        plain = _PLAIN[quote].match(text, at)
        assert plain is not None, "the pattern matches the empty text"
        at = plain.end()
        if text[at : at + 1] == quote:
            return at + 1
        if text[at : at + 1] == "\ufffd":
            raise ValueError("invalid UTF-8 rune")
        if text[at : at + 1] != "\\":
            raise ValueError("unterminated raw string" if quote == "`" else "unterminated quoted string")
        at = _escape(text, at + 1, quote)


def _escape(text: str, at: int, quote: str) -> int:
    """Return where an escape ends; the character after its backslash is at `at`."""
    kind = text[at : at + 1]
    if not kind:
        raise ValueError("escape sequence not terminated")
    if kind in "abfnrtv\\" or kind == quote:
        return at + 1
    if kind in _DIGITS:
        at += 1
    elif kind not in "01234567":
        raise ValueError(f"unknown escape sequence {_rune(kind)}")
    count, base, largest = _DIGITS.get(kind, _OCTAL)
    value = 0
    for position in range(at, at + count):
        digit = text[position : position + 1]
        if not digit:
            raise ValueError("escape sequence not terminated")
        if digit not in "0123456789abcdefABCDEF" or int(digit, 16) >= base:
            raise ValueError(f"illegal character {_rune(digit)} in escape sequence")
        value = value * base + int(digit, 16)
    if value > largest or value in _SURROGATES:
        raise ValueError("escape sequence is an invalid Unicode code point")
    return at + count


def _rune(character: str) -> str:
    return f"U+{ord(character):04X} {character!r}" if character.isprintable() else f"U+{ord(character):04X}"
