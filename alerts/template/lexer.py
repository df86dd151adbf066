"""Cuts a template into text and actions, and an action into tokens. Go's text/template in its plain form."""

from __future__ import annotations

import re
from typing import NamedTuple

from alerts.template.errors import TemplateError
from alerts.template.limits import LONGEST_TEMPLATE

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<text>"(?:[^"\\\n]|\\.)*" | `[^`]*`)
      | (?P<char>'(?:[^'\\\n]|\\.)*')
      | (?P<number>[+-]?(?: 0[xX][0-9a-fA-F]+
                          | (?: [0-9][0-9_]*\.?[0-9]* | \.[0-9]+ )(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_]))
      | (?P<variable>\$[A-Za-z0-9_]*)
      | (?P<field>\.[A-Za-z_][A-Za-z0-9_]*)
      | (?P<dot>\.)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<symbol>:=|[=|(),])""",
    re.VERBOSE,
)

_TRIM = re.compile(r"-[ \t\r\n]")
_END = re.compile(r"([ \t\r\n]-)?\}\}")
_COMMENT_END = re.compile(r"\*/( -)?\}\}")


class Token(NamedTuple):
    """One token of an action; `at` is its offset in the template, `glued` says that no space precedes it."""

    kind: str
    text: str
    at: int
    glued: bool


class Piece(NamedTuple):
    """A stretch of a template: text, or an action's tokens."""

    text: str
    tokens: tuple[Token, ...]
    at: int
    is_action: bool


def place(source: str, at: int) -> str:
    """Where an offset is, for people."""
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    return f"column {column}" if "\n" not in source.strip("\n") else f"line {line}, column {column}"


def cut(source: str) -> list[Piece]:
    """The pieces of a template. Raises TemplateError."""
    if len(source) > LONGEST_TEMPLATE:
        raise TemplateError(f"has {len(source)} characters; {LONGEST_TEMPLATE} are the most that are read")
    pieces = []
    position, trim = 0, False
    while True:
        start = source.find("{{", position)
        text = source[position:] if start < 0 else source[position:start]
        inner = start + 2
        trims_left = start >= 0 and _TRIM.match(source, inner) is not None
        text = text.lstrip(" \t\r\n") if trim else text
        text = text.rstrip(" \t\r\n") if trims_left else text
        if text:
            pieces.append(Piece(text, (), position, False))
        if start < 0:
            return pieces
        inner += 2 if trims_left else 0
        position, trim, tokens = _action(source, start, inner)
        if tokens is not None:
            pieces.append(Piece("", tokens, start, True))


def _action(source: str, start: int, inner: int) -> tuple[int, bool, tuple[Token, ...] | None]:
    """Where the action ends, whether it trims what follows, and its tokens: None of a comment."""
    if source.startswith("/*", inner):
        close = _COMMENT_END.search(source, inner)
        if close is None:
            raise TemplateError(f"{place(source, start)}: the comment is not closed; end it with */}}}}")
        return close.end(), close[1] is not None, None
    tokens: list[Token] = []
    position, glued = inner, False
    while True:
        close = _END.match(source, position)
        if close is not None:
            return close.end(), close[1] is not None, tuple(tokens)
        match = _TOKEN.match(source, position)
        if match is None:
            raise TemplateError(_stuck(source, start, position))
        kind = match.lastgroup or ""
        if kind == "space":
            glued = False
        else:
            tokens.append(Token(kind, match[0], position, glued))
            glued = True
        position = match.end()


def _stuck(source: str, start: int, position: int) -> str:
    where = place(source, position)
    if position >= len(source):
        return f"{place(source, start)}: the action is not closed; end it with }}}}"
    character = source[position]
    if character in "\"'`":
        return f"{where}: the text is not closed; end it with {character}"
    if source.startswith("{{", position):
        return f"{place(source, start)}: the action is not closed before the next {{{{; end it with }}}}"
    return f"{where}: {character!r} means nothing inside {{{{ }}}}"
