"""A part of RE2's dialect on top of `re`, for platforms without the library.

`re` backtracks, so only what it can match in about linear time is accepted, and whatever it would interpret differently
is translated or rejected: literals, classes, alternatives, groups that are not repeated, and repeated single
characters. The number of ways to try is computed beforehand: each alternative and each bounded repetition multiplies
it, and each unbounded repetition multiplies it by the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from alerts.regex.regex_errors import RegexLimitError, TextTooLongError

_MOST_TRIES = 2**21
"""Ways to match that may be tried in vain: a tenth of a second of work."""
_SHORTEST = 256
"""An expression that could not be matched with a text of this length is rejected."""
_DEEPEST = 20

_REPEAT = re.compile(r"(?:[*+?]|\{(0|[1-9][0-9]{0,2})(?:(,)(0|[1-9][0-9]{0,2})?)?\})\??")
_OPEN = re.compile(r"\((?:\?:|\?P?<([A-Za-z0-9_]+)>|(?!\?))")
_ESCAPE = re.compile(r"\\(?:x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|([tnrfva])|([^0-9A-Za-z\x80-\U0010ffff]))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_SHORT = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r"\t ", "digit": "0-9", "lower": "a-z",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_IN_SET = re.compile(rf"\[:(?P<posix>{'|'.join(_POSIX)}):\]|\\(?P<short>[dws])|{_ESCAPE.pattern}|[^\]\\\[]")

Span = tuple[int, int]


class Substitute:
    """An expression of the safe part of the dialect."""

    __slots__ = ("_compiled", "_search", "_whole", "groups", "names")

    def __init__(self, pattern: str, *, dot_all: bool) -> None:
        reader = _ExpressionReader(pattern, dot_all=dot_all)
        source = reader.source()
        self.groups = reader.groups
        self.names: Mapping[str, int] = reader.names
        self._whole = _longest(reader.ways, reader.unbounded)
        self._search = _longest(reader.ways, reader.unbounded + 1)  # since a match may begin anywhere
        if self._whole < _SHORTEST:
            reader.refuse("could take more than linear time here")
        self._compiled = re.compile(source)

    def is_whole(self, text: str) -> bool:
        _refuse_longer(text, self._whole)
        return self._compiled.fullmatch(text) is not None

    def is_within(self, text: str) -> bool:
        _refuse_longer(text, self._search)
        return self._compiled.search(text) is not None

    def subject(self, text: str) -> _Characters:
        _refuse_longer(text, self._search)
        return _Characters(self._compiled, text)


class _Characters:
    """A text with places counted in characters."""

    __slots__ = ("_compiled", "_text", "end")

    def __init__(self, compiled: re.Pattern[str], text: str) -> None:
        self._compiled = compiled
        self._text = text
        self.end = len(text)

    def whole(self) -> list[Span] | None:
        return self._spans(self._compiled.fullmatch(self._text))

    def search(self, at: int) -> list[Span] | None:
        return self._spans(self._compiled.search(self._text, at))

    def after(self, at: int) -> int:
        return at + 1

    def part(self, start: int, end: int) -> str:
        return self._text[start:end]

    def _spans(self, found: re.Match[str] | None) -> list[Span] | None:
        return None if found is None else [found.span(group) for group in range(self._compiled.groups + 1)]


def _longest(ways: int, unbounded: int) -> int:
    """The most characters of a text with which no more ways than allowed are tried."""
    each = _MOST_TRIES // ways
    return each if unbounded <= 1 else int(each ** (1 / unbounded))


def _refuse_longer(text: str, longest: int) -> None:
    if len(text) > longest:
        raise TextTooLongError(f"the text of {len(text)} characters is too long; the limit is {longest}")


class _ExpressionReader:
    """Reads an expression and writes it for `re`; rejects what it does not know."""

    def __init__(self, pattern: str, *, dot_all: bool) -> None:
        self._pattern = pattern
        self._at = 0
        self._dot = "(?s:.)" if dot_all else r"[^\n]"
        self.groups = 0
        self.names: dict[str, int] = {}
        self.ways = 1
        self.unbounded = 0

    def refuse(self, what: str = "") -> NoReturn:
        what = what or f"{self._pattern[self._at : self._at + 20]!r} is not supported here"
        raise RegexLimitError(
            f"{what} without the library that matches in linear time: install the package google-re2, or use only "
            "words, classes, alternatives and at most two of * and + after single characters"
        )

    def source(self) -> str:
        """The expression for `re`; afterwards `ways` and `unbounded` give its cost."""
        source, self.ways = self._alternatives(0)
        if self._at < len(self._pattern):
            self.refuse()
        return source

    def _is(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _alternatives(self, depth: int) -> tuple[str, int]:
        if depth > _DEEPEST:
            self.refuse("groups are nested too deeply")
        branches = [self._branch(depth)]
        while self._is("|"):
            self._at += 1
            branches.append(self._branch(depth))
        return "|".join(source for source, _ in branches), sum(ways for _, ways in branches)

    def _branch(self, depth: int) -> tuple[str, int]:
        pieces, ways = [], 1
        while self._at < len(self._pattern) and not self._is("|") and not self._is(")"):
            piece, more = self._group(depth) if self._is("(") else self._character()
            pieces.append(piece)
            ways *= more
        return "".join(pieces), ways

    def _group(self, depth: int) -> tuple[str, int]:
        opened = _OPEN.match(self._pattern, self._at)
        if opened is None:
            self.refuse()
        captures = opened[0] != "(?:"
        if captures:
            self.groups += 1
            if opened[1] and self.names.setdefault(opened[1], self.groups) != self.groups:
                self.refuse(f"the name {opened[1]!r} is given twice")
        self._at = opened.end()
        inner, ways = self._alternatives(depth + 1)
        if not self._is(")"):
            self.refuse("a group is not closed")
        self._at += 1
        if _REPEAT.match(self._pattern, self._at) or self._is("{"):
            self.refuse()
        return f"({inner})" if captures else f"(?:{inner})", ways

    def _character(self) -> tuple[str, int]:
        """One character, class or anchor, with its repetition."""
        for written, anchor in (("^", r"\A"), ("$", r"\Z"), (r"\A", r"\A"), (r"\z", r"\Z")):
            if self._is(written):
                self._at += len(written)
                if _REPEAT.match(self._pattern, self._at) or self._is("{"):
                    self.refuse()
                return anchor, 1
        single = self._single()
        repeat = _REPEAT.match(self._pattern, self._at)
        if repeat is None:
            if self._is("{"):
                self.refuse()
            return single, 1
        self._at = repeat.end()
        if self._pattern[self._at : self._at + 1] in tuple("*+?{"):
            self.refuse()
        return single + repeat[0], self._ways(repeat)

    def _ways(self, repeat: re.Match[str]) -> int:
        if repeat[0][0] in "*+" or (repeat[2] and not repeat[3]):
            self.unbounded += 1
            return 1
        if repeat[0][0] == "?":
            return 2
        ways = int(repeat[3] or repeat[1]) - int(repeat[1]) + 1
        if ways < 1:
            self.refuse()
        return ways

    def _single(self) -> str:
        character = self._pattern[self._at]
        if character == "[":
            return self._set()
        if character == "\\":
            short = self._pattern[self._at + 1 : self._at + 2]
            if short and short in "dwsDWS":
                self._at += 2
                return f"[{'^' if short.isupper() else ''}{_SHORT[short.lower()]}]"
            return re.escape(self._escaped())
        if character in "*+?{}]":
            self.refuse()
        self._at += 1
        return self._dot if character == "." else re.escape(character)

    def _escaped(self) -> str:
        found = _ESCAPE.match(self._pattern, self._at)
        if found is None:
            self.refuse()
        code = int(found[1] or found[2] or "0", 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.refuse()
        self._at = found.end()
        return chr(code) if found[1] or found[2] else _CONTROL.get(found[3], "") or found[4]

    def _set(self) -> str:
        """A class in brackets."""
        self._at += 1
        negated = self._is("^")
        self._at += negated
        items: list[str] = []
        while not self._is("]"):
            items.append(self._item())
        self._at += 1
        if not items:
            self.refuse()
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _item(self) -> str:
        found = _IN_SET.match(self._pattern, self._at)
        if found is None:
            self.refuse()
        if found["posix"] or found["short"]:
            self._at = found.end()
            if self._is("-"):
                self.refuse()
            return _POSIX[found["posix"]] if found["posix"] else _SHORT[found["short"]]
        low = self._member()
        if not self._is("-") or self._pattern[self._at + 1 : self._at + 2] in ("", "]"):
            return re.escape(low)
        self._at += 1
        high = self._member()
        if high < low:
            self.refuse()
        return f"{re.escape(low)}-{re.escape(high)}"

    def _member(self) -> str:
        """One character of a class."""
        if self._is("\\"):
            return self._escaped()
        character = self._pattern[self._at]
        if character in "[]":
            self.refuse()
        self._at += 1
        return character
