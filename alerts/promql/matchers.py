"""Label matchers, and the translation of their regular expressions.

Prometheus matches with RE2, always against the whole value, and a dot also matches a newline. Python's `re` differs in
a few constructs; those that can be translated are, and the others are refused, never silently read another way.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache

from alerts.promql.errors import PromqlError
from alerts.promql.labels import METRIC_NAME, Labels, label_value

_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_POSIX = re.compile(r"\[:(\w+):\]")
# What RE2 and `re` read differently is `foreign`: Unicode classes, quoting, `\z`, RE2's `\C`, `{,n}` (a literal),
# quantifiers on quantifiers (possessive in `re`), look-around, atomic and conditional groups, references back, and
# flags that begin in the middle.
_PIECE = re.compile(
    r"""(?P<foreign> \\[pPQEzZCX1-9] | (?:[*+?]|\{\d+(?:,\d*)?\})\+ | \{,\d+\} | \(\?(?:[=!>\#(]|<[=!]|P[=>])
          | (?<!\A)\(\?[a-zA-Z-]+\) )
      | \\. | \[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\] | .""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=1024)
def compile_regex(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression of the RE2 dialect; use `fullmatch` on it."""
    for piece in _PIECE.finditer(pattern):
        if piece.lastgroup:
            raise PromqlError(
                f"regular expression {pattern!r}: {piece.group()!r} is not supported; use plain classes and groups",
                construct=pattern,
            )
    # Go names groups `(?<n>...)` as well as `(?P<n>...)`; `re` knows only the latter.
    translated = re.sub(r"\(\?<(?=\w)", "(?P<", _POSIX.sub(_posix_class, pattern))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `re` warns of set syntax that it may give a meaning one day
            return re.compile(translated, re.DOTALL | re.ASCII)
    except re.error as error:
        raise PromqlError(f"regular expression {pattern!r}: {error}", construct=pattern) from None


def _posix_class(found: re.Match[str]) -> str:
    name = found.group(1)
    if name not in _POSIX_CLASSES:
        raise PromqlError(f"regular expression: unknown character class [:{name}:]", construct=found.group())
    return _POSIX_CLASSES[name]


class Matcher:
    """One matcher of a selector: a label's name, `=`, `!=`, `=~` or `!~`, and a value or regular expression."""

    __slots__ = ("_hash", "matches", "name", "operator", "value")

    def __init__(self, name: str, operator: str, value: str) -> None:
        self.name = name
        self.operator = operator
        self.value = value
        self._hash = hash((name, operator, value))
        self.matches: Callable[[str], bool] = _predicate(operator, value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Matcher):
            return NotImplemented
        return (self.name, self.operator, self.value) == (other.name, other.operator, other.value)

    def __repr__(self) -> str:
        return f"{self.name}{self.operator}{self.value!r}"


def _predicate(operator: str, value: str) -> Callable[[str], bool]:
    if operator == "=":
        return value.__eq__
    if operator == "!=":
        return value.__ne__
    fullmatch = compile_regex(value).fullmatch
    if operator == "=~":
        return lambda text: fullmatch(text) is not None
    if operator == "!~":
        return lambda text: fullmatch(text) is None
    raise ValueError(f"unknown matcher {operator!r}: one of = != =~ !~")


def wanted_name(matchers: tuple[Matcher, ...]) -> str | None:
    """Return the one metric name that can match, or None if the name is left open."""
    for matcher in matchers:
        if matcher.name == METRIC_NAME and matcher.operator == "=":
            return matcher.value
    return None


def match_all(matchers: tuple[Matcher, ...], labels: Labels) -> bool:
    """Return whether a label set satisfies every matcher; a missing label reads as empty."""
    return all(matcher.matches(label_value(labels, matcher.name)) for matcher in matchers)
