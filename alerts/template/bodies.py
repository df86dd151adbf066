"""The trees of recently rendered templates, so that those of a firing alert are not parsed each second."""

from __future__ import annotations

from alerts.template.parser import Parsed, parse

MOST_CHARACTERS = 262_144
"""Most characters of the texts whose trees are kept: a tree takes some ten to fifteen bytes for each."""
_STALE = 4
"""After parsing this many times as many characters without keeping their trees, the cache is cleared."""


class _Bodies:
    """Trees by the text and, where it may define others, the name of the template."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Parsed] = {}
        self._characters = 0
        self._passing = 0

    def of(self, source: str, name: str) -> Parsed:
        key = (source, name if defines(source) else "")
        found = self._kept.get(key)
        if found is not None:
            return found
        found = parse(source, name)
        if self._passing > _STALE * MOST_CHARACTERS:
            self.forget()
        # The first ones stay. If the oldest were dropped instead, and more templates were rendered in turn than there
        # is room for, none would still be there when its turn comes.
        if self._characters + len(source) <= MOST_CHARACTERS:
            self._kept[key] = found
            self._characters += len(source)
        else:
            self._passing += len(source)
        return found

    def forget(self) -> None:
        self._kept.clear()
        self._characters = self._passing = 0


_BODIES = _Bodies()


def defines(source: str) -> bool:
    """Whether a template may define others, for which its own name matters."""
    return "define" in source or "block" in source


def parsed(source: str, name: str) -> Parsed:
    """The tree of a template that has been parsed without an error before."""
    return _BODIES.of(source, name)


def forget_bodies() -> None:
    """Drop all trees, since other rules are in force."""
    _BODIES.forget()
