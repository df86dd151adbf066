"""The trees of templates that were rendered lately, so that an alert which goes on firing is not parsed each second."""

from __future__ import annotations

from alerts.template.parser import Parsed, parse

MOST_CHARACTERS = 262_144
"""Characters of the texts whose trees are kept: a tree takes some ten to fifteen bytes for each."""
_STALE = 4
"""Times that many characters parsed for nobody's later use, after which what is kept makes room for others."""


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
        # The first that come stay. If the oldest made room, and more fire in turn than there is room for, none
        # would be there any more when its turn comes.
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
    """Let all trees go, since other rules are in force."""
    _BODIES.forget()
