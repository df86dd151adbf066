"""Where in a query's text something stands.

The parser library says what is wrong but seldom where. A named construct is looked up among the text's tokens; a
syntax error is placed at the first token with which the text can no longer be completed to something that parses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)
      | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)
      | (?P<word>[A-Za-z_:][\w:]*)
      | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-][0-9]+|[0-9.][\w.]*)
      | (?P<sign>=~|!~|==|!=|<=|>=|.)""",
    re.VERBOSE | re.DOTALL,
)
_DECIMAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_CLOSING = {"(": ")", "{": "}", "[": "]"}
# What may follow an unfinished query so that it becomes a whole one, before the open brackets are closed.
_COMPLETIONS = ("", "x", "1", '"x"', "(x)", "(x)(x)", "1m", '="x"', ":", "(x[1m])", "x[1m]", "1,x")
_LONGEST_TEXT = 2000


def tokens(text: str) -> Iterator[tuple[str, int, str]]:
    """Return kind, offset and text of each token; what is unknown counts as a sign."""
    for found in _TOKEN.finditer(text):
        if found.lastgroup != "skip":
            yield str(found.lastgroup), found.start(), found.group()


def number_literals(text: str) -> Iterator[tuple[int, str, float]]:
    """Return offset, text and value of each number, without its sign; ranges, offsets and other durations are none."""
    in_brackets = False
    before = ""
    for kind, start, written in tokens(text):
        if written in ("[", "]"):
            in_brackets = written == "["
        elif kind == "number" and not in_brackets and before not in ("offset", "@"):
            value = _value_of(written)
            if value is not None:
                yield start, written, value
        if written not in ("+", "-"):
            before = written.lower()


def _value_of(written: str) -> float | None:
    """Return the value of a number as Prometheus reads it: base 16 after `0x`, base 8 after `0`, else decimal."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", written):
        return float(int(written, 16))
    if re.fullmatch(r"0[0-7]+", written):
        return float(int(written, 8))
    return float(written) if _DECIMAL.fullmatch(written) else None


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def find_token(text: str, wanted: str) -> tuple[int, int] | None:
    """Return the place of the first token with this text, or else of the first quoted text that contains it."""
    if not wanted:
        return None
    quoted = None
    for kind, offset, token in tokens(text):
        if kind != "text" and token == wanted:
            return line_and_column(text, offset)
        if kind == "text" and quoted is None and wanted in token:
            quoted = line_and_column(text, offset)
    return quoted


def find_open_bracket(text: str) -> tuple[int, int] | None:
    """Return the place of the innermost bracket that is never closed."""
    opened: list[int] = []
    for _, offset, token in tokens(text):
        if token in _CLOSING:
            opened.append(offset)
        elif token in _CLOSING.values() and opened:
            opened.pop()
    return line_and_column(text, opened[-1]) if opened else None


def find_syntax_error(text: str, parses: Callable[[str], bool]) -> tuple[int, int] | None:
    """Return the place of the first token that cannot stand where it does; None if that cannot be told.

    `parses` says whether a text has the shape of a query, whatever its types.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    found = list(tokens(text))
    for count in range(len(found), -1, -1):
        end = found[count - 1][1] + len(found[count - 1][2]) if count else 0
        if _can_be_completed(text[:end], [token for _, _, token in found[:count]], parses):
            offset = found[count][1] if count < len(found) else len(text.rstrip())
            return line_and_column(text, offset)
    return None


def _can_be_completed(prefix: str, signs: list[str], parses: Callable[[str], bool]) -> bool:
    open_brackets: list[str] = []
    for sign in signs:
        if sign in _CLOSING:
            open_brackets.append(_CLOSING[sign])
        elif open_brackets and sign == open_brackets[-1]:
            open_brackets.pop()
    closing = "".join(reversed(open_brackets))
    # The innermost list may close before the rest of the construct follows: `sum by (x` wants `)(x)`.
    endings = [closing] if not closing else [closing, f"{closing[0]}(x){closing[1:]}"]
    return any(parses(f"{prefix} {completion}{ending}") for ending in endings for completion in _COMPLETIONS)
