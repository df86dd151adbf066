"""The replacement templates of Go's regexp.Expand: `$1`, `$name`, `${name}`, `$$`.

A name is as long as possible: `$1x` is the group named 1x, and empty without such a group. A `$` that starts no name is
literal. Source: `expand` and `extract` of Go's package regexp.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from alerts.regex.regex_errors import TextTooLongError

_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


class Expansion:
    """A replacement text, parsed once; `names` are the named groups of the pattern."""

    __slots__ = ("_parts",)

    def __init__(self, template: str, names: Mapping[str, int]) -> None:
        self._parts: list[str | int] = []
        """Literal texts, and numbers of groups."""
        start = 0
        while (dollar := template.find("$", start)) >= 0:
            name, end = ("", dollar + 2) if template.startswith("$$", dollar) else _name(template, dollar + 1)
            self._parts += [template[start:dollar], _group(name, names) if name else "$"]
            start = end
        self._parts.append(template[start:])

    def of(self, groups: Sequence[str | None], longest: int) -> str:
        """Return the text for the groups of a match, the whole match first.

        A group that does not exist, or took no part, is empty. Raises TextTooLongError beyond `longest` characters.
        """
        pieces = [part if isinstance(part, str) else _taken(groups, part) for part in self._parts]
        if sum(map(len, pieces)) > longest:
            raise TextTooLongError("the replacement is too long")
        return "".join(pieces)


def _taken(groups: Sequence[str | None], number: int) -> str:
    return groups[number] or "" if 0 <= number < len(groups) else ""


def _name(template: str, start: int) -> tuple[str, int]:
    """Return the name that begins here, after a `$`, and where it ends; an empty one if none begins."""
    begin = start + template.startswith("{", start)
    end = begin
    while end < len(template) and _is_word(template[end]):
        end += 1
    if end == begin or (begin > start and not template.startswith("}", end)):
        return "", start
    return template[begin:end], end + (begin - start)


def _is_word(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character == "_"
    category = unicodedata.category(character)
    return category.startswith("L") or category == "Nd"


def _group(name: str, names: Mapping[str, int]) -> int:
    """Return the number of a group; -1, which no group has, for an unknown name."""
    if _NUMBER.fullmatch(name):
        return int(name)
    return names.get(name, -1)
