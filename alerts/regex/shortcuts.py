r"""Patterns that only mean `is one of`, `starts with`, `ends with` or `contains`, and need no engine.

Most patterns that people write are of this kind (`PIX|PXB`, `.*coldplate.*`), and a look-up in a set takes a tenth of
the time that an engine takes to start. A dot matches every character here, including a line break, as in matchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LITERAL = r"(?:[^\\.+*?()|\[\]{}^$]|\\[^0-9A-Za-z\x80-\U0010ffff])*"
_WORDS = re.compile(r"[^\\.+*?()\[\]{}^$]*")
_CHOICE = re.compile(rf"{_LITERAL}(?:\|{_LITERAL})*")
_AFFIXED = re.compile(rf"(?P<before>\.[*+])?(?P<text>{_LITERAL})(?P<after>\.[*+])?")
_SPLIT = re.compile(r"(?:[^\\|]|\\.)+|(?<=\|)(?=\||\Z)|\A(?=\||\Z)", re.DOTALL)


def predicate(pattern: str) -> Callable[[str], bool] | None:
    """Return a function that says whether a whole text matches, or None if that needs an engine."""
    if _CHOICE.fullmatch(pattern):
        return frozenset(_plain(each) for each in _SPLIT.findall(pattern)).__contains__
    affixed = _AFFIXED.fullmatch(pattern)
    return _affixed(affixed["before"], _plain(affixed["text"]), affixed["after"]) if affixed else None


def is_list_of_words(pattern: str) -> bool:
    """Whether a pattern has no special character except `|`."""
    return _WORDS.fullmatch(pattern) is not None


def _plain(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal, flags=re.DOTALL)


def _affixed(before: str | None, text: str, after: str | None) -> Callable[[str], bool]:
    """Return the test for `.*text.*` and the like; a `+` requires one more character on its side."""
    least_before, least_after = int(before == ".+"), int(after == ".+")
    shortest = least_before + len(text) + least_after
    if not before:
        return lambda value: len(value) >= shortest and value.startswith(text)
    if not after:
        return lambda value: len(value) >= shortest and value.endswith(text)
    # Of places with enough characters before them, the first one leaves the most after it.
    return lambda value: 0 <= value.find(text, least_before) <= len(value) - len(text) - least_after
