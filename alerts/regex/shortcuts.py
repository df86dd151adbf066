r"""Alternatives that only mean `is`, `starts with`, `ends with` or `contains`, and need no engine.

Most patterns that people write are of this kind (`PIX|PXB`, `.*coldplate.*`, `nvml|jobs_.*`), and a look-up in a set
takes a tenth of the time that an engine takes to start. A dot matches every character here, including a line break, as
in matchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LITERAL = r"(?:[^\\.+*?()|\[\]{}^$]|\\[^0-9A-Za-z\x80-\U0010ffff])*"
_WORDS = re.compile(r"[^\\.+*?()\[\]{}^$]*")
_CHOICE = re.compile(rf"{_LITERAL}(?:\|{_LITERAL})*")
_AFFIXED = re.compile(rf"(?P<before>\.[*+])?(?P<text>{_LITERAL})(?P<after>\.[*+])?")
_ALTERNATIVE = re.compile(r"((?:[^\\|]|\\.)*)\|", re.DOTALL)
_MOST_AFFIXED = 16
"""Alternatives with `.*` or `.+`: each is tried by itself, where an engine tries all at once."""


def predicate(pattern: str) -> Callable[[str], bool] | None:
    """Return a function that says whether a whole text matches, or None if that needs an engine."""
    alternatives = _alternatives(pattern)
    if _CHOICE.fullmatch(pattern):
        return frozenset(map(_plain, alternatives)).__contains__
    if "|".join(alternatives) != pattern:  # it ends with a single backslash
        return None
    words: set[str] = set()
    tests: list[Callable[[str], bool]] = []
    for each in alternatives:
        affixed = _AFFIXED.fullmatch(each)
        if affixed is None or len(tests) == _MOST_AFFIXED:
            return None
        if affixed["before"] or affixed["after"]:
            tests.append(_affixed(affixed["before"], _plain(affixed["text"]), affixed["after"]))
        else:
            words.add(_plain(affixed["text"]))
    if len(tests) == 1 and not words:
        return tests[0]
    return lambda value: value in words or any(test(value) for test in tests)


def words_of(pattern: str) -> list[str] | None:
    """Return the words one of which a text must contain to match somewhere, or None if that needs an engine."""
    if not pattern.isascii() or not _CHOICE.fullmatch(pattern):
        return None
    return list(map(_plain, _alternatives(pattern)))


def is_list_of_words(pattern: str) -> bool:
    """Whether a pattern has no special character except `|`."""
    return _WORDS.fullmatch(pattern) is not None


def _alternatives(pattern: str) -> list[str]:
    """Return the parts between bars that are not escaped. A single backslash at the end is in none."""
    return [found[1] for found in _ALTERNATIVE.finditer(f"{pattern}|")]


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
