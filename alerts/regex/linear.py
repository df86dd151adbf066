"""Match with RE2, by the library `google-re2`, in the only module that imports it; and the errors of expressions.

The library has wheels for CPython on Linux with glibc, on x86-64 and aarch64. Elsewhere an expression that needs an
engine is rejected: `re` backtracks, and would let one rule stop the whole process.

Where RE2 and Go's package regexp/syntax differ, Go decides: what only RE2 accepts is rejected. Such a pattern has been
accepted by RE2, so only the boundaries of its parts need to be known. The differences were found by comparing the two
over generated patterns; the source for Go is its regexp/syntax, and for RE2 its re2/parse.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


class RegexError(ValueError):
    """The text is not a regular expression, or not one supported here; says why, and what to write instead."""


class RegexLimitError(RegexError):
    """A regular expression that Go would accept, but that takes more than is allowed here."""


class TextTooLongError(Exception):
    """A text is too long to be matched with this expression in a reasonable time."""


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
            if piece["name"] is not None and not piece["name"].isascii():
                raise RegexError(f"invalid named capture {piece['name']!r}: use ASCII letters, digits and _")
        elif piece["close"]:
            depth -= 1
        elif piece["repeat"]:
            _refuse_count(piece["repeat"], piece["least"], piece["most"] or "")
        elif piece["escape"] == r"\C":
            raise RegexError(r"invalid escape sequence \C: a single byte is not text")
        # RE2 never matches halves of characters; Prometheus, which rewrites expressions, matches U+FFFD.
        for escape in _HALF_CHARACTER.findall(piece["escape"] or piece["set"] or ""):
            if len(escape) > 2:
                raise RegexError(f"{escape} is half of a character: no text contains it")
        if depth > DEEPEST:
            raise RegexLimitError(f"groups are nested more than {DEEPEST} deep")


def _refuse_count(written: str, *counts: str) -> None:
    is_text = any(len(count) > 1 and count.startswith("0") for count in counts)  # to both RE2 and Go
    if not is_text and any(len(count) > _LONGEST_COUNT for count in counts):
        raise RegexError(f"invalid repeat count {written}: the limit is 1000")


KEPT = 32
"""Most compiled expressions kept at once: all of them take at most 8 MiB."""
_MEMORY = 256 * 2**10
"""Bytes that one expression may take; RE2 rejects what needs more, such as a thousand times any letter."""
_MOST_UNICODE_CLASSES = 100
"""Each takes a table of some 40 kB while RE2 parses, before its own limit on memory applies."""
_MOST_STEPS = 2**22
"""Characters times instructions of one match: an eighth of a second when RE2 has to look at every pair."""
_MOST_STEPS_WITH_GROUPS = 2**20
"""The same if it also has to keep the place of each group."""
MOST_GROUPS = 100
"""Most groups whose places can be requested: RE2 copies all of them for each character."""

WITHOUT_LIBRARY = (
    "needs the library that matches in linear time, and it is not installed: install the package google-re2, or use "
    "only alternatives of words with .* or .+ before or after them"
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Span = tuple[int, int]


@lru_cache(maxsize=KEPT)
def program(pattern: str, *, dot_all: bool, groups: bool) -> Program:
    """Compile; with `dot_all` a dot also matches a line break, without `groups` none can be requested. Raises
    RegexError.

    Callers must not keep a program: a recently used one is still cached here, where the memory is bounded.
    """
    return Program(_library(), pattern, dot_all=dot_all, groups=groups)


def _library() -> Any:
    """Return the module. It takes 1.5 MiB, which most rules do not need. Raises RegexError if it is not installed."""
    try:
        import re2
    except ImportError:
        raise RegexError(WITHOUT_LIBRARY) from None
    if not hasattr(re2, "Options"):  # there are other libraries with that name
        raise RegexError(WITHOUT_LIBRARY)
    return re2


class Program:
    """A compiled expression. Methods that take a text may raise TextTooLongError."""

    __slots__ = ("_compiled", "_longest", "groups", "names")

    def __init__(self, re2: Any, pattern: str, *, dot_all: bool, groups: bool) -> None:
        if pattern.count(r"\p") + pattern.count(r"\P") > _MOST_UNICODE_CLASSES:
            raise RegexLimitError(rf"has more than {_MOST_UNICODE_CLASSES} classes such as \pL: write fewer")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY
        options.dot_nl = dot_all
        options.never_capture = not groups
        try:
            self._compiled: Any = re2.compile(pattern, options)
        except re2.error as error:
            reason = _reason(error)
            raise (RegexLimitError if "too large" in reason else RegexError)(reason) from None
        finally:
            re2.purge()  # the library's own cache has no bound on memory
        refuse_foreign(pattern)
        self.groups: int = self._compiled.groups
        self.names: Mapping[str, int] = self._compiled.groupindex
        steps = _MOST_STEPS_WITH_GROUPS if self.groups else _MOST_STEPS
        self._longest = steps // max(self._compiled.programsize, 1)

    def is_whole(self, text: str) -> bool:
        """Return whether the whole text matches."""
        # Bytes, since for a text the library computes spans in characters, which are not needed.
        return self._compiled.fullmatch(self._fit(text).encode()) is not None

    def is_within(self, text: str) -> bool:
        """Return whether it matches somewhere."""
        return self.subject(text).search(0) is not None

    def subject(self, text: str) -> Subject:
        """Return the text in the form that is matched with the expression."""
        return Subject(self._compiled, text, self._fit(text).encode())

    def _fit(self, text: str) -> str:
        """Return the text as Go would see it: what is no character, as in file names not in UTF-8, becomes U+FFFD."""
        if len(text) > self._longest:
            raise TextTooLongError(f"the text of {len(text)} characters is too long; the limit is {self._longest}")
        return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


class Subject:
    """A text in UTF-8: as RE2 sees it, and the original, which has the same length. Places are those of bytes."""

    __slots__ = ("_compiled", "_data", "_original", "_text", "end")

    def __init__(self, compiled: Any, text: str, data: bytes) -> None:
        self._compiled = compiled
        self._text = text
        self._data = data
        self._original: bytes | None = None
        self.end = len(data)

    def whole(self) -> list[Span] | None:
        """Return the spans of a match of the whole text: its own, then its groups', (-1, -1) for one not in it."""
        return self._spans(self._compiled.fullmatch(self._data))

    def search(self, at: int) -> list[Span] | None:
        """Return the same for the first match from a place on."""
        # RE2 may match \B between any two bytes, Go only where a character begins.
        spans = self._spans(self._compiled.search(self._data, at))
        while spans and self._is_inside(spans[0][0]):
            spans = self._spans(self._compiled.search(self._data, self.after(spans[0][0])))
        return spans

    def after(self, at: int) -> int:
        """Return the place after the character at a place."""
        at += 1
        while self._is_inside(at):
            at += 1
        return at

    def part(self, start: int, end: int) -> str:
        """Return the text between two places."""
        if self._original is None:
            self._original = self._text.encode("utf-8", "surrogatepass")
        return self._original[start:end].decode("utf-8", "surrogatepass")

    def _is_inside(self, at: int) -> bool:
        return at < self.end and 0x80 <= self._data[at] < 0xC0

    def _spans(self, match: Any) -> list[Span] | None:
        return None if match is None else [match.span(group) for group in range(self._compiled.groups + 1)]


def _reason(error: Exception) -> str:
    """Return the library's own words, which it gives as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
