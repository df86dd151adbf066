"""The positions of numbers in a query's text, for code that changes them there."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.promql.syntax.literals import number_value
from alerts.promql.syntax.scanner import Scanner


def number_literals(text: str) -> Iterator[tuple[int, str, float]]:
    """Return offset, text and value of each number, without its sign; ranges, offsets and other durations are not
    numbers.

    The text is that of a query that compiles.
    """
    tokens = Scanner(text)
    in_brackets = False
    before = ""
    for kind, written, start in zip(tokens.kinds, tokens.texts, tokens.starts, strict=True):
        if kind in ("[", "]"):
            in_brackets = kind == "["
        elif kind == "number" and not written.isalpha() and not in_brackets and before not in ("offset", "@"):
            yield start, written, number_value(written)
        if kind not in ("+", "-"):
            before = kind
