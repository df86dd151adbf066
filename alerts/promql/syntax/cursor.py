"""A position among the tokens of a query, and the error for an unexpected token."""

from __future__ import annotations

from typing import NoReturn

from alerts.promql.syntax.flaw import FlawError
from alerts.promql.syntax.literals import quoted
from alerts.promql.syntax.scanner import AGGREGATIONS, Scanner

_OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    ">=",
    "=~",
    "!~",
    "and",
    "or",
    "unless",
    "atan2",
)
_KEYWORDS = ("bool", "by", "without", "on", "ignoring", "group_left", "group_right", "offset")
_SHOWN = 10


class Cursor:
    """The current token: its kind, its text, and its offset `at`."""

    __slots__ = ("_next", "_tokens", "at", "kind", "text")

    def __init__(self, tokens: Scanner) -> None:
        self._tokens = tokens
        self._next = 0
        self.kind = self.text = ""
        self.at = 0
        self.advance()

    def advance(self) -> None:
        """Go on to the next token; after the end comes another end."""
        tokens, position = self._tokens, self._next
        self.kind, self.text, self.at = tokens.kinds[position], tokens.texts[position], tokens.starts[position]
        if position + 1 < len(tokens.kinds):
            self._next += 1

    def skip(self, kind: str) -> bool:
        """Go past the current token if it is of this kind, and say whether it was."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def unexpected(self, context: str = "", expected: str = "") -> NoReturn:
        """Reject the current token, as Prometheus does; if it is not a token at all, its text says what is wrong."""
        if self.kind == "error":
            raise FlawError(self.at, self.text)
        where = f" in {context}" if context else ""
        wanted = f", expected {expected}" if expected else ""
        raise FlawError(self.at, f"unexpected {self._description()}{where}{wanted}")

    def _description(self) -> str:
        kind, text = self.kind, self.text
        if kind == "end of input":
            return kind
        if kind in ("identifier", "metric identifier"):
            return f"{kind} {quoted(text)}"
        if kind in ("number", "duration", "string"):
            shown = f"{quoted(text[:_SHOWN])}..." if len(text) > _SHOWN else quoted(text)
            return f"{kind} {shown}"
        if kind in _OPERATORS:
            return f"<op:{text}>"
        if kind in AGGREGATIONS:
            return f"<aggr:{text}>"
        return f"<{text}>" if kind in _KEYWORDS else quoted(text)
