"""Split a query into tokens, within limits on its size; an error has its offset, before lines are counted.

Prometheus has no such limits; an agent that must never crash on a rule file needs them.

The meaning of a character depends on the brackets around it, as in Prometheus: between braces every word is a label
name; between square brackets there are durations, and any letter after the first of them is a colon. Prometheus
accepts more as a number here than it can parse afterwards (`5e `, `0x`), and what is not a number is tried as a
duration from where the number stopped.
"""

import re

from alerts.go_literals import read_quoted
from alerts.promql.labels import PromqlError
from alerts.promql.syntax.literals import quoted


class FlawError(Exception):
    """A problem at an offset of the text; code that has the text turns it into a `PromqlError`."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem

    def in_query(self, text: str) -> PromqlError:
        """Return the error of the query with this text."""
        line, column = text.count("\n", 0, self.at) + 1, self.at - text.rfind("\n", 0, self.at)
        return PromqlError(self.problem, f"line {line}, column {column}: ")


LONGEST_TEXT = 65_536
"""Characters of a query. The longest expressions of well-known rule collections have some 4,000."""

MOST_TOKENS = 10_000
"""Words, numbers, texts and signs of a query. Each node, matcher and label of a tree takes at least one, so this bounds
the tree and its plan: 1.5 KiB a token at worst, 15 MiB a query."""

DEEPEST = 100
"""Levels of nesting: brackets, signs, arguments and right-hand operands. A row of operators as in `a or b or c` is one
level, however long it is.

Python allows 1,000 nested calls. Parsing and compiling take at most five of them for a level, evaluating takes three,
so half of them are left to the caller."""


_MARK = r"(?![._eE]|\Z)"
_DIGITS = rf"(?:[0-9]|_{_MARK})*"
_HEXADECIMAL_DIGITS = rf"(?:[0-9a-dfA-DF][0-9a-fA-F]*|_{_MARK})*"
_DOT, _EXPONENT = r"\.(?![._])", rf"[eE](?:[+-]|(?![+-])){_MARK}"
_NUMBER = re.compile(
    rf"""0[xX]_?\.?[0-9a-fA-F]?{_HEXADECIMAL_DIGITS}(?:{_EXPONENT}{_HEXADECIMAL_DIGITS})?
       | 0?\.?[0-9]?{_DIGITS}(?:{_DOT}{_DIGITS}(?:{_EXPONENT}{_DIGITS})?|{_EXPONENT}{_DIGITS}(?:{_DOT}{_DIGITS})?)?""",
    re.VERBOSE,
)
_NO_NUMBER = re.compile(r"(?:[eE][+-]?|[._])[._eE]?")
"""The end of what is not a number, because of a mark that cannot follow."""
_UNITS = re.compile(r"[smhdwy]s?(?:[0-9]+[smhdw]s?)*")
_WORD = re.compile(r"[0-9A-Za-z_]")


def scan_numeral(text: str, start: int) -> tuple[str, int]:
    """Return "number" or "duration", or "" for neither, and where it ends or cannot go on."""
    number = _NUMBER.match(text, start)
    assert number is not None, "the pattern matches the empty text"
    end = number.end()
    flaw = _NO_NUMBER.match(text, end)
    if flaw is not None:
        end = flaw.end()
    elif not _WORD.match(text, end):
        return "number", end
    units = _UNITS.match(text, end)
    if units is not None and not _WORD.match(text, units.end()):
        return "duration", units.end()
    return "", end if units is None else units.end()


AGGREGATIONS = frozenset((
    "avg", "bottomk", "count", "count_values", "group", "limit_ratio", "limitk", "max", "min", "quantile", "stddev",
    "stdvar", "sum", "topk",
))  # fmt: skip
_OPERATOR_WORDS = (
    "and", "or", "unless", "atan2", "offset", "by", "without", "on", "ignoring", "group_left", "group_right", "bool",
    "start", "end",
)  # fmt: skip
_KEYWORDS = {word: word for word in (*AGGREGATIONS, *_OPERATOR_WORDS)} | {"inf": "number", "nan": "number"}

# Every text can be matched in only one way, and the last pattern takes any character: no text is slow.
_SPACE = r"[ \t\r\n]*(?:\#[^\r\n]*[ \t\r\n]*)*"
_QUOTED = r"""(?P<string>"[^"\\\n\ufffd]*"|'[^'\\\n\ufffd]*'|`[^`\ufffd]*`)"""
_NUMERAL = r"(?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?![\w.]))|(?P<duration>[0-9]+(?:ms|[smhdwy])(?!\w))"
_REST = r"(?P<end>\Z)|(?P<other>.)"


def _mode(space: str, *alternatives: str) -> re.Pattern[str]:
    return re.compile(f"{space}(?:{'|'.join((*alternatives, _REST))})", re.DOTALL | re.ASCII)


_SIGN = r"(?P<sign>==|!=|<=|>=|=(?!~)|[-+*/%^<>(){\[\],@])"
_OUTSIDE = _mode(_SPACE, r"(?P<word>[A-Za-z_:][\w:]*)", _SIGN, _NUMERAL, _QUOTED)
_BRACES = _mode(_SPACE, r"(?P<identifier>[A-Za-z_]\w*)", r"(?P<sign>=~|!~|!=|=|,|\})", _QUOTED)
_RANGE_BEGIN = _mode(r"[ \t\r\n]*", r"(?P<colon>:)", r"(?P<sign>[-+*/%^()\]])", _NUMERAL)
_RANGE = _mode(_SPACE, r"(?P<colon>[A-Za-z_:])", _SIGN, _NUMERAL, _QUOTED)

_WHERE = {_BRACES: " inside braces", _RANGE_BEGIN: " in duration expression"}
_BRACKETS = frozenset("()[]{}")
_OPENING = {")": "(", "]": "[", "}": "{"}
_CLOSING_NAMES = {")": "right parenthesis", "]": "right bracket", "}": "right brace"}


class Scanner:
    """The tokens of a text: their kinds, texts and offsets, as columns.

    A sign or keyword is its own kind, in any case; the other kinds are named as in Prometheus's errors, such as
    "identifier". The last token is of the kind "end of input" or "error"; an error's text says what is wrong. Raises
    FlawError for a text that is too long.
    """

    def __init__(self, text: str) -> None:
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self._text = text
        self._mode = _OUTSIDE
        self._open: list[int] = []  # offsets of the brackets that are not closed
        self._in_bracket = False
        self._has_colon = False
        if len(text) > LONGEST_TEXT:
            raise FlawError(LONGEST_TEXT, f"the query is longer than {LONGEST_TEXT} characters; split it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FlawError(error.start, "invalid UTF-8 rune") from None
        self._scan()

    def _scan(self) -> None:
        """Read the tokens up to the end, or to the first that is invalid."""
        text, at, kind = self._text, 0, ""
        while kind not in ("end of input", "error"):
            match = self._mode.match(text, at)
            assert match is not None, "the last pattern takes any character"
            kind = str(match.lastgroup)
            start, at = match.span(kind)
            piece = text[start:at]
            if kind == "word":
                kind = _KEYWORDS.get(piece.lower()) or ("metric identifier" if ":" in piece else "identifier")
            elif kind in ("sign", "colon", "end", "other"):
                try:
                    kind, at = self._special(kind, piece, start)
                    piece = text[start:at]
                except FlawError as flaw:
                    kind, piece, start = "error", flaw.problem, flaw.at
            if self._mode is _RANGE_BEGIN and kind in ("number", "duration"):
                self._mode = _RANGE
            self.kinds.append(kind)
            self.texts.append(piece)
            self.starts.append(start)
            if len(self.kinds) > MOST_TOKENS:
                raise FlawError(start, f"the query has more than {MOST_TOKENS} words, numbers and signs; split it")

    def _special(self, kind: str, piece: str, start: int) -> tuple[str, int]:
        """Return kind and end of a token that changes what may follow, or that is unusual."""
        end = start + len(piece)
        if kind == "sign":
            if piece in _BRACKETS:
                self._bracket(piece, start)
            return piece, end
        if kind == "colon":
            self._colon(start)
            return ":", end
        if kind == "end":
            self._end()
            return "end of input", end
        return self._other(start)

    def _bracket(self, bracket: str, at: int) -> None:
        """Record a bracket that opens or closes, or reject one that cannot be there."""
        if bracket == "[" and self._in_bracket:
            raise FlawError(at, "unexpected left bracket '['")
        if bracket in _OPENING:
            if not self._open or self._text[self._open[-1]] != _OPENING[bracket]:
                raise FlawError(at, f"unexpected {_CLOSING_NAMES[bracket]} {bracket!r}")
            self._open.pop()
        else:
            self._open.append(at)
        if bracket == "[":
            self._in_bracket, self._has_colon, self._mode = True, False, _RANGE_BEGIN
        elif bracket == "]":
            self._in_bracket, self._mode = False, _OUTSIDE
        elif bracket == "{":
            self._mode = _BRACES
        elif bracket == "}":
            self._mode = _RANGE if self._in_bracket else _OUTSIDE

    def _colon(self, at: int) -> None:
        if self._mode is _RANGE_BEGIN:
            raise FlawError(at, "unexpected colon before duration in duration expression")
        if self._has_colon:
            raise FlawError(at, f"unexpected colon {self._text[at]!r}")
        self._has_colon = True

    def _end(self) -> None:
        """Reject a text that ends within brackets, at the innermost of them."""
        if not self._open:
            return
        innermost = self._open[-1]
        problems = {
            "(": "unclosed left parenthesis",
            "{": "unexpected end of input inside braces",
            "[": "unclosed left bracket",
        }
        raise FlawError(innermost, problems[self._text[innermost]])

    def _other(self, at: int) -> tuple[str, int]:
        """Return kind and end of an unusual number or quoted text, or reject a character."""
        character, after = self._text[at], self._text[at + 1 : at + 2]
        if self._mode is not _BRACES and (_is_digit(character) or (character == "." and _is_digit(after))):
            kind, end = scan_numeral(self._text, at)
            if not kind:
                raise FlawError(at, f"bad number or duration syntax: {quoted(self._text[at:end])}")
            return kind, end
        if character in "\"'`" and self._mode is not _RANGE_BEGIN:
            try:
                end = read_quoted(self._text, at)[1]
            except ValueError as error:
                raise FlawError(at, str(error)) from None
            if "\ufffd" in self._text[at:end]:  # it stands for what was not UTF-8
                raise FlawError(at, "invalid UTF-8 rune")
            return "string", end
        where = _WHERE.get(self._mode, "")
        if character == "{":
            raise FlawError(at, "unexpected left brace '{'")
        if character in "=!" and after and self._mode is not _RANGE_BEGIN:
            raise FlawError(at, f"unexpected character after {character!r}{where}: {after!r}")
        raise FlawError(at, f"unexpected character{where}: {character!r}")


def _is_digit(character: str) -> bool:
    return character.isdigit() and character.isascii()
