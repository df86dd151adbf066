"""Where RE2 and Go's package regexp/syntax differ, Go decides: what only RE2 accepts is rejected.

Every pattern here has already been accepted by RE2, so only the boundaries of its parts need to be known.
The differences were found by comparing the two over generated patterns; the source for Go is its regexp/syntax, and for
RE2 its re2/parse.cc.
"""

from __future__ import annotations

import re

from alerts.regex.regex_errors import RegexError, RegexLimitError

DEEPEST = 250
"""Levels of nested groups. Go's limit is 1000 nodes of its tree; each level costs time for each character."""
_LONGEST_COUNT = 8
"""Digits of a count: RE2 reads a longer one as text, and Go rejects it."""

_PIECE = re.compile(
    r"\\Q.*?(?:\\E|\Z)"
    r"|(?P<escape>\\(?:x\{[0-9A-Fa-f]+\}|.))"
    r"|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?P?<(?P<name>[^>]*)>|\?[a-zA-Z-]*(?P<flags>\)))?)"
    r"|(?P<close>\))"
    r"|(?P<repeat>\{(?P<least>[0-9]+)(?:,(?P<most>[0-9]*))?\})"
    r"|.",
    re.DOTALL,
)
_HALF_CHARACTER = re.compile(r"\\x\{0*[dD][89a-fA-F][0-9a-fA-F]{2}\}|\\.", re.DOTALL)


def refuse_foreign(pattern: str) -> None:
    """Raise RegexError for what RE2 accepts but Go rejects or reads differently, and for what is too large."""
    depth = 0
    for piece in _PIECE.finditer(pattern):
        if piece["open"] and not piece["flags"]:
            depth += 1
            _refuse_name(piece["name"])
        elif piece["close"]:
            depth -= 1
        elif piece["repeat"]:
            _refuse_count(piece["repeat"], piece["least"], piece["most"] or "")
        elif piece["escape"] == r"\C":
            raise RegexError(r"invalid escape sequence \C: a single byte is not text")
        _refuse_half_characters(piece["escape"] or piece["set"] or "")
        if depth > DEEPEST:
            raise RegexLimitError(f"groups are nested more than {DEEPEST} deep")


def _refuse_half_characters(written: str) -> None:
    """Reject halves of characters: RE2 never matches them; Prometheus, which rewrites expressions, matches U+FFFD."""
    for escape in _HALF_CHARACTER.findall(written):
        if len(escape) > 2:
            raise RegexError(f"{escape} is half of a character: no text contains it")


def _refuse_name(name: str | None) -> None:
    if name is not None and not name.isascii():
        raise RegexError(f"invalid named capture {name!r}: use ASCII letters, digits and _")


def _refuse_count(written: str, *counts: str) -> None:
    is_text = any(len(count) > 1 and count.startswith("0") for count in counts)  # to both RE2 and Go
    if not is_text and any(len(count) > _LONGEST_COUNT for count in counts):
        raise RegexError(f"invalid repeat count {written}: the limit is 1000")
