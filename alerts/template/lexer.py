"""Splits a template into text and actions, and an action into tokens, as Go's text/template does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from alerts.go_literals import is_of_name
from alerts.template.values import LONGEST_TEMPLATE, TemplateError

SPACES = " \t\r\n"
KEYWORDS = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with")
)  # fmt: skip
_TRIM = re.compile(r"-[ \t\r\n]")
_END = re.compile(r"([ \t\r\n]-)?\}\}")
_QUOTED = {
    '"': re.compile(r'"(?:[^"\\\n]|\\[^\n])*"'),
    "`": re.compile(r"`[^`]*`"),
    "'": re.compile(r"'(?:[^'\\\n]|\\[^\n])*'"),
}
_KINDS = {'"': "text", "`": "text", "'": "char"}
_DIGITS = r"[0-9_]*"
_NUMBER = re.compile(
    rf"""[+-]?(?: 0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?{_DIGITS})?
              | 0[oO][0-7_]*(?:\.[0-7_]*)? | 0[bB][01_]*(?:\.[01_]*)?
              | {_DIGITS}(?:\.{_DIGITS})?(?:[eE][+-]?{_DIGITS})? ) i?""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A piece of text, a sign or word of an action, or an action's beginning or end; `at` is its offset."""

    kind: str
    text: str
    at: int


def place(source: str, at: int) -> str:
    """Return an offset as line and column, for messages."""
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    return f"column {column}" if "\n" not in source.strip("\n") else f"line {line}, column {column}"


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of a template, one of kind `eof` last. Raises TemplateError where no valid token follows."""
    if len(source) > LONGEST_TEMPLATE:
        raise TemplateError(f"has {len(source)} characters; the limit is {LONGEST_TEMPLATE}")
    position, trim = 0, False
    while True:
        start = source.find("{{", position)
        text = source[position:] if start < 0 else source[position:start]
        inner = start + 2
        trims_left = start >= 0 and _TRIM.match(source, inner) is not None
        kept = text.lstrip(SPACES) if trim else text
        at = position + len(text) - len(kept)
        kept = kept.rstrip(SPACES) if trims_left else kept
        if kept:
            yield Token("plain", kept, at)
        if start < 0:
            yield Token("eof", "", len(source))
            return
        inner += 2 if trims_left else 0
        if source.startswith("/*", inner):
            position, trim = _comment(source, start, inner)
            continue
        yield Token("open", "{{", start)
        action = _Action(source, start, inner)
        yield from action.tokens()
        position, trim = action.end, action.trims


def _comment(source: str, start: int, inner: int) -> tuple[int, bool]:
    """Return where a comment ends, and whether it trims what follows."""
    close = source.find("*/", inner + 2)
    if close < 0:
        raise TemplateError(f"{place(source, start)}: the comment is not closed; end it with */}}}}")
    match = _END.match(source, close + 2)
    if match is None:
        raise TemplateError(f"{place(source, close)}: the comment ends before the action; write */}}}}")
    return match.end(), match[1] is not None


class _Action:
    """The inside of an action; after its last token, also where it ended and whether it trims what follows."""

    def __init__(self, source: str, start: int, inner: int) -> None:
        self._source = source
        self._start = start
        self._at = inner
        self._depth = 0
        self.end = inner
        self.trims = False

    def tokens(self) -> Iterator[Token]:
        source = self._source
        while True:
            close = _END.match(source, self._at)
            if close is not None:
                if self._depth:
                    raise self._error("the parenthesis is not closed; end it with )")
                yield Token("close", "}}", close.end() - 2)
                self.end, self.trims = close.end(), close[1] is not None
                return
            if self._at >= len(source):
                raise TemplateError(f"{place(source, self._start)}: the action is not closed; end it with }}}}")
            yield self._token(source[self._at])

    def _error(self, problem: str) -> TemplateError:
        return TemplateError(f"{place(self._source, self._at)}: {problem}")

    def _take(self, kind: str, end: int) -> Token:
        token = Token(kind, self._source[self._at : end], self._at)
        self._at = end
        return token

    def _token(self, letter: str) -> Token:
        source, at = self._source, self._at
        if letter in SPACES:
            end = at
            while source[end : end + 1] in SPACES and end < len(source):
                end += 1
            # the space before a closing -}} is part of it
            return self._take("space", end - 1 if end - 1 > at and _END.match(source, end - 1) else end)
        if letter in _QUOTED:
            match = _QUOTED[letter].match(source, at)
            if match is None:
                raise self._error(f"the string is not closed; end it with {letter}")
            return self._take(_KINDS[letter], match.end())
        if letter == ":":
            if source[at + 1 : at + 2] != "=":
                raise self._error("expected :=")
            return self._take(":=", at + 2)
        if letter in "=|(),":
            self._depth += {"(": 1, ")": -1}.get(letter, 0)
            if self._depth < 0:
                raise self._error("unexpected ): no parenthesis is open")
            return self._take(letter, at + 1)
        if letter == "$" or (letter == "." and not "0" <= source[at + 1 : at + 2] <= "9"):
            return self._name("variable" if letter == "$" else "field", at + 1)
        if letter in "+-." or "0" <= letter <= "9":
            return self._number()
        if is_of_name(letter):
            return self._name("word", at)
        if source.startswith("{{", at):
            raise TemplateError(
                f"{place(source, self._start)}: the action is not closed before the next {{{{; end it with }}}}"
            )
        if letter.isascii() and letter.isprintable():
            return self._take("sign", at + 1)
        raise self._error(f"{letter!r} has no meaning inside {{{{ }}}}")

    def _name(self, kind: str, begin: int) -> Token:
        source, end = self._source, begin
        while end < len(source) and is_of_name(source[end]):
            end += 1
        following = source[end : end + 1]
        if not (following in (*SPACES, ".", ",", "|", ":", ")", "(", "") or source.startswith("}}", end)):
            self._at = end
            raise self._error(
                f"{following!r} cannot follow {source[begin - (kind != 'word') : end]!r}; write a space between"
            )
        token = self._take(kind, end)
        if token.text == ".":
            return token._replace(kind="dot")
        if token.text in ("true", "false"):
            return token._replace(kind="truth")
        return token._replace(kind=token.text) if token.text in KEYWORDS else token

    def _number(self) -> Token:
        source, end = self._source, self._at
        match = _NUMBER.match(source, end)
        assert match is not None, "the pattern matches the empty text"
        end = match.end()
        if source[end : end + 1] in ("+", "-"):
            match = _NUMBER.match(source, end)
            assert match is not None
            end = match.end()
            if source[end - 1] != "i":
                raise self._error(f"{source[self._at : end]!r} is not a number")
        if end < len(source) and is_of_name(source[end]):
            raise self._error(f"{source[self._at : end + 1]!r} is not a number")
        return self._take("number", end)
