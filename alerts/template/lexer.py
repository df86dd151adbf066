"""Splits a template into text and actions, and an action into tokens, as Go's text/template does."""

import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from alerts.go_literals import is_of_name
from alerts.template.values import LONGEST_TEMPLATE, TemplateError

SPACES = " \t\r\n"
KEYWORDS = frozenset(("block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with"))
_TRIM = re.compile(r"-[ \t\r\n]")
_CLOSE = re.compile(r"(?P<trims>[ \t\r\n]-)?\}\}")
_DIGITS = r"[0-9_]*"
_NUMBER = rf"""[+-]?(?: 0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?{_DIGITS})?
              | 0[oO][0-7_]*(?:\.[0-7_]*)? | 0[bB][01_]*(?:\.[01_]*)?
              | {_DIGITS}(?:\.{_DIGITS})?(?:[eE][+-]?{_DIGITS})? )"""
_TOKEN = re.compile(
    rf"""(?P<close>{_CLOSE.pattern})
       | (?P<space>(?:[ \t\r\n](?!-\}}\}}))+)
       | (?P<text>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)
       | (?P<char>'(?:[^'\\\n]|\\[^\n])*')
       | (?P<mark>:=|[=|(),])
       | (?P<variable>\$) | (?P<field>\.(?![0-9]))
       | (?P<number>(?=[-+.0-9]){_NUMBER})
       | (?P<word>(?=\w))
       | (?P<sign>(?!\{{\{{|["'`:])[!-~])""",
    re.VERBOSE,
)
"""The tokens of an action; of a name only what it begins with."""


class Token(NamedTuple):
    """A piece of text, a sign or word of an action, or an action's beginning or end.

    `at` is its offset; `is_apart` says whether spaces are before it.
    """

    kind: str
    text: str
    at: int
    is_apart: bool = False


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
        close = yield from _action(source, start, inner)
        position, trim = close.end(), close["trims"] is not None


def _comment(source: str, start: int, inner: int) -> tuple[int, bool]:
    """Return where a comment ends, and whether it trims what follows."""
    close = source.find("*/", inner + 2)
    if close < 0:
        raise TemplateError(f"{place(source, start)}: the comment is not closed; end it with */}}}}")
    match = _CLOSE.match(source, close + 2)
    if match is None:
        raise TemplateError(f"{place(source, close)}: the comment ends before the action; write */}}}}")
    return match.end(), match["trims"] is not None


def _action(source: str, start: int, at: int) -> Generator[Token, None, re.Match[str]]:
    """Yield the tokens of the action that begins at `start`, from `at` on; return the match of its end."""
    depth, is_apart = 0, False
    while True:
        match = _TOKEN.match(source, at)
        if match is None:
            raise _no_token(source, start, at)
        kind = str(match.lastgroup)
        if kind == "space":
            at, is_apart = match.end(), True
            continue
        if kind == "close":
            if depth:
                raise _flaw(source, at, "the parenthesis is not closed; end it with )")
            yield Token(kind, "}}", match.end() - 2)
            return match
        if kind == "mark":
            kind = match[0]
            depth += {"(": 1, ")": -1}.get(kind, 0)
            if depth < 0:
                raise _flaw(source, at, "unexpected ): no parenthesis is open")
        token = Token(kind, match[0], at, is_apart)
        if kind in ("variable", "field", "word"):
            token = _name(source, token)
        elif kind == "number" and is_of_name(source[match.end() : match.end() + 1]):
            raise _flaw(source, at, f"{source[at : match.end() + 1]!r} is not a number")
        yield token
        at, is_apart = at + len(token.text), False


def _flaw(source: str, at: int, problem: str) -> TemplateError:
    return TemplateError(f"{place(source, at)}: {problem}")


def _no_token(source: str, start: int, at: int) -> TemplateError:
    """Return why no token of the action that begins at `start` can begin here."""
    letter = source[at : at + 1]
    if not letter:
        return _flaw(source, start, "the action is not closed; end it with }}")
    if letter in "\"`'":
        return _flaw(source, at, f"the string is not closed; end it with {letter}")
    if letter == ":":
        return _flaw(source, at, "expected :=")
    if letter == "{":
        return _flaw(source, start, "the action is not closed before the next {{; end it with }}")
    return _flaw(source, at, f"{letter!r} has no meaning inside {{{{ }}}}")


def _name(source: str, begun: Token) -> Token:
    """Return the token of a variable, field or word: with its name, and as a kind of its own if that is a keyword."""
    end = begun.at + len(begun.text)
    while end < len(source) and is_of_name(source[end]):
        end += 1
    if end == begun.at:  # a digit to Python, but not to Go
        raise _no_token(source, begun.at, begun.at)
    text, following = source[begun.at : end], source[end : end + 1]
    if following not in " \t\r\n.,|:()" and not source.startswith("}}", end):
        raise _flaw(source, end, f"{following!r} cannot follow {text!r}; write a space between")
    kind = {".": "dot", "true": "truth", "false": "truth"}.get(text, text if text in KEYWORDS else begun.kind)
    return Token(kind, text, begun.at, begun.is_apart)
