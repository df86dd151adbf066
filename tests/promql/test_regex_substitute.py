"""Each construct that is matched without RE2's library, judged by RE2 itself: none may be refused, and none differ."""

from __future__ import annotations

import pytest

from alerts.regex import RegexError, TextTooLongError
from alerts.regex.linear import Program, program
from alerts.regex.substitute import Substitute

TEXTS = (
    "", "A", "a", "b", "ab", "aab", "abc", "-", "]", "\\", ".", "\t", "\n", "\v", "5", "_", "é", "\x10", "x", "$", "ac",
    "A5",
)  # fmt: skip
TAKEN = (
    "a", ".", "a.", "^a$", "a|b", "(a)(b|)", "(?P<n>a)b*", "(?:a|A)5?", "a*b", "a+b", "a??b", "a{2}b", "a{0,2}b",
    "a{1,}b", "[ab]+", "[^ab]", "[a-c]*", r"[\]]", r"[\\]", "[.$-]", "[[:alpha:]]", "[^[:alnum:]]", "[[:space:]]",
    "[[:xdigit:]_]", r"[\d_]", r"[\w]", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\.", r"\-", r"\]", r"\\", r"\$",
    r"\x41", r"\x{41}", r"\x{e9}", r"\x10", r"\t", r"\n", r"\v", r"[\t\n]", r"[\x41-\x43]", r"[a\x{e9}]", "",
)  # fmt: skip
REFUSED = (
    "a)",
    "(a",
    "[",
    "[]",
    "*a",
    "a**",
    "a{2}{3}",
    r"\x{d800}",
    r"\x{110000}",
    r"\xg1",
    r"\q",
    "(a)*",
    "a{",
    "}",
    "?",
)


def engine(pattern: str, *, dot_all: bool) -> Program:
    return program(pattern, dot_all=dot_all, groups=True)


@pytest.mark.parametrize("dot_all", [True, False])
@pytest.mark.parametrize("pattern", TAKEN)
def test_it_matches_as_with_the_library(pattern: str, dot_all: bool) -> None:
    ours, theirs = Substitute(pattern, dot_all=dot_all), engine(pattern, dot_all=dot_all)
    assert (ours.groups, dict(ours.names)) == (theirs.groups, dict(theirs.names))
    for text in TEXTS:
        assert ours.is_whole(text) == theirs.is_whole(text), text
        assert ours.is_within(text) == theirs.is_within(text), text
        if text.isascii():  # where both count places alike
            mine, other = ours.subject(text), theirs.subject(text)
            assert (mine.whole(), mine.search(0), mine.end) == (other.whole(), other.search(0), other.end), text
            assert [mine.part(*found[0]) for found in [mine.search(0)] if found] == [
                other.part(*found[0]) for found in [other.search(0)] if found
            ]


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_it_cannot_match_safely_is_refused_and_not_guessed(pattern: str) -> None:
    with pytest.raises(RegexError):
        Substitute(pattern, dot_all=True)


@pytest.mark.parametrize(
    ("pattern", "whole", "within"), [("a*b", 2**21, 1448), ("(a|b)c", 2**20, 2**20), ("a*b*", 1448, 127)]
)
def test_a_text_may_be_as_long_as_all_ways_can_be_tried(pattern: str, whole: int, within: int) -> None:
    expression = Substitute(pattern, dot_all=True)
    for longest, use in ((whole, expression.is_whole), (within, expression.is_within), (within, expression.subject)):
        use("x" * longest)
        with pytest.raises(TextTooLongError, match=f"{longest + 1} characters is too long; the limit is {longest}"):
            use("x" * (longest + 1))
