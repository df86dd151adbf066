"""Compile regular expressions as matchers, `label_replace` and templates use them, and expand their replacements.

Most patterns that people write only mean `is`, `starts with`, `ends with` or `contains` (`PIX|PXB`, `.*coldplate.*`,
`nvml|jobs_.*`) and need no engine: a look-up in a set takes a tenth of the time that an engine takes to start. A dot
matches every character here, including a line break, as in matchers.

Replacements are templates of Go's regexp.Expand: `$1`, `$name`, `${name}`, `$$`. A name is as long as possible: `$1x`
is the group named 1x, and empty without such a group. A `$` that starts no name is literal. Source: `expand` and
`extract` of Go's package regexp.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from alerts.go_literals import is_of_name
from alerts.regex import linear
from alerts.regex.linear import RegexError, RegexLimitError, TextTooLongError

_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


class Expansion:
    """A replacement text, parsed once; `names` are the named groups of the pattern."""

    __slots__ = ("_parts",)

    def __init__(self, template: str, names: Mapping[str, int]) -> None:
        self._parts: list[str | int] = []
        """Literal texts, and numbers of groups."""
        start = 0
        while (dollar := template.find("$", start)) >= 0:
            name, end = "", dollar + 2
            if not template.startswith("$$", dollar):
                name, end = _name(template, dollar + 1)
            self._parts += [template[start:dollar], _group(name, names) if name else "$"]
            start = end
        self._parts.append(template[start:])

    def expand(self, groups: Sequence[str | None], longest: int) -> str:
        """Return the text for the groups of a match, the whole match first.

        A group that does not exist, or took no part, is empty. Raises TextTooLongError beyond `longest` characters.
        """
        by_number = dict(enumerate(groups))
        pieces = [part if isinstance(part, str) else by_number.get(part) or "" for part in self._parts]
        if sum(map(len, pieces)) > longest:
            raise TextTooLongError("the replacement is too long")
        return "".join(pieces)


def _name(template: str, start: int) -> tuple[str, int]:
    """Return the name that begins here, after a `$`, and where it ends; an empty one if none begins."""
    begin = start + template.startswith("{", start)
    end = begin
    while end < len(template) and is_of_name(template[end]):
        end += 1
    if end == begin or (begin > start and not template.startswith("}", end)):
        return "", start
    return template[begin:end], end + (begin - start)


def _group(name: str, names: Mapping[str, int]) -> int:
    """Return the number of a group; -1, which no group has, for an unknown name."""
    if _NUMBER.fullmatch(name):
        return int(name)
    return names.get(name, -1)


_LITERAL = r"(?:[^\\.+*?()|\[\]{}^$]|\\[^0-9A-Za-z\x80-\U0010ffff])*"
_WORDS = re.compile(r"[^\\.+*?()\[\]{}^$]*")
_CHOICE = re.compile(rf"{_LITERAL}(?:\|{_LITERAL})*")
_AFFIXED = re.compile(rf"(?P<before>\.[*+])?(?P<text>{_LITERAL})(?P<after>\.[*+])?")
_PIECE = re.compile(r"\||(?:[^\\|]|\\.)+|\\", re.DOTALL)
_MOST_AFFIXED = 16
"""Alternatives with `.*` or `.+`: each is tried by itself, where an engine tries all at once."""


def predicate(pattern: str) -> Callable[[str], bool] | None:
    """Return a function that says whether a whole text matches, or None if that needs an engine."""
    alternatives = _alternatives(pattern)
    if _CHOICE.fullmatch(pattern):
        return frozenset(map(_plain, alternatives)).__contains__
    words: set[str] = set()
    tests: list[Callable[[str], bool]] = []
    for alternative in alternatives:
        affixed = _AFFIXED.fullmatch(alternative)
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
    """Return whether a pattern has no special character except `|`."""
    return _WORDS.fullmatch(pattern) is not None


def _alternatives(pattern: str) -> list[str]:
    """Return the parts between bars that are not escaped."""
    alternatives = [""]
    for piece in _PIECE.findall(pattern):
        if piece == "|":
            alternatives.append("")
        else:
            alternatives[-1] += piece
    return alternatives


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


_WHOLE = {"(.*)": 0, "(.+)": 1}
"""Expressions of label_replace whose one group is the whole text, with the least characters of a match."""
LONGEST = 8192
"""Most characters of an expression that needs an engine. A list of words, however long, does not."""


class Regex:
    """A regular expression of Go's dialect. Raises RegexError.

    By default it is read as in Prometheus 3's matchers and `label_replace`, where a dot matches a line break; templates
    do not use `dot_all`. Groups can be referred to only if requested by `groups`. It keeps nothing of the engine's:
    that memory is bounded for all expressions together.
    """

    __slots__ = ("_dot_all", "_groups", "_plain", "_simple", "_words", "names", "pattern")

    def __init__(self, pattern: str, *, dot_all: bool = True, groups: bool = False) -> None:
        self.pattern = pattern
        self.names: Mapping[str, int] = {}
        """Named groups and their numbers; empty unless groups were requested."""
        self._dot_all = dot_all
        self._groups = groups
        is_text = pattern.isascii() or not any("\ud800" <= character <= "\udfff" for character in pattern)
        # Go does not parse an expression that is only a list of words: bytes that are not text match nothing.
        if not is_text and (not dot_all or groups or not is_list_of_words(pattern)):
            raise RegexError("is not valid Unicode")
        self._plain = predicate(pattern) if dot_all else None
        self._words = None if dot_all or len(pattern) > LONGEST else words_of(pattern)
        self._simple = self._without_engine() if dot_all else None
        if self._words is None and (self._plain is None or groups) and self._simple is None:
            self._check()

    def _check(self) -> None:
        if len(self.pattern) > LONGEST:
            raise RegexLimitError(f"is longer than {LONGEST} characters: use a list of words, or several rules")
        checked = self._program()
        if checked.groups > linear.MOST_GROUPS:
            raise RegexLimitError(
                f"has more than {linear.MOST_GROUPS} groups: write (?:...) for groups without references"
            )
        self.names = dict(checked.names) if self._groups else {}

    def _without_engine(self) -> Callable[[str], list[str | None] | None] | None:
        """Return a function that gives the groups of a text that matches whole; None if that needs an engine."""
        if self._groups and self.pattern in _WHOLE:
            least = _WHOLE[self.pattern]
            return lambda text: [text, text] if len(text) >= least else None
        plain = self._plain
        if plain is None or not is_list_of_words(self.pattern):
            return None
        return lambda text: [text] if plain(text) else None

    def _program(self) -> linear.Program:
        return linear.program(self.pattern, dot_all=self._dot_all, groups=self._groups)

    def predicate(self) -> Callable[[str], bool]:
        """Return a function that says whether a whole text matches, and may raise TextTooLongError."""
        return self._is_whole if self._plain is None else self._plain

    def _is_whole(self, text: str) -> bool:
        return self._program().is_whole(text)

    def found_in(self, text: str) -> bool:
        """Return whether some part of a text matches. Raises TextTooLongError."""
        if self._words is not None:
            return any(word in text for word in self._words)
        return self._program().is_within(text)

    def expanded(self, text: str, expansion: Expansion, longest: int) -> str | None:
        """Return the replacement for a text that matches as a whole, None for one that does not.

        Raises TextTooLongError, also for a replacement of more than `longest` characters.
        """
        if self._simple is not None:
            groups = self._simple(text)
            return None if groups is None else expansion.expand(groups, longest)
        subject = self._program().subject(text)
        spans = subject.whole()
        return None if spans is None else expansion.expand(_parts(subject, spans), longest)

    def replaced(
        self, text: str, expansion: Expansion, longest: int, watch: Callable[[int], None] = lambda _: None
    ) -> str:
        """Return the text with every match replaced, as Go's ReplaceAllString. Raises TextTooLongError.

        `watch` is called with the length of the text before each search, to end what takes too long.
        """
        subject = self._program().subject(text)
        pieces: list[str] = []
        end = at = 0
        while at <= subject.end:
            spans = subject.search(at)
            if not spans:
                break
            watch(len(text))
            start, stop = spans[0]
            pieces.append(subject.part(end, start))
            longest -= len(pieces[-1])
            if stop > end or start == 0:  # an empty match right after the one before it does not count
                pieces.append(expansion.expand(_parts(subject, spans), longest))
                longest -= len(pieces[-1])
            end = stop
            at = stop if stop > at else subject.after(at)
        return "".join([*pieces, subject.part(end, subject.end)])


def _parts(subject: linear.Subject, spans: Sequence[linear.Span]) -> list[str | None]:
    return [None if start < 0 else subject.part(start, end) for start, end in spans]
