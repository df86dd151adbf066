"""Sentences of a grammar that is a table, from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence

_NAME = re.compile(r"\$([a-z]+)")

Productions = Mapping[str, Sequence[str]]
"""What each name may stand for. `$name` in a production is one of that name's; any other `$` is itself."""


class Grammar:
    """Says sentences. Names in `deep` may contain themselves: their first production is for where no room is left."""

    def __init__(self, productions: Productions, deep: Collection[str], seed: int) -> None:
        self.dice = random.Random(seed)
        self._productions = productions
        self._deep = deep

    def say(self, name: str, room: int) -> str:
        """One of a name's sentences, in which at most `room` deep names contain one another."""
        chosen = self.choices(name)
        if name in self._deep:
            chosen, room = (chosen[1:], room - 1) if room > 0 else (chosen[:1], room)
        made = self.dice.choice(chosen)
        if not _NAME.search(made):
            return made
        return self.join([_NAME.sub(lambda found: self._said(found, room), part) for part in made.split(" ")])

    def _said(self, found: re.Match[str], room: int) -> str:
        return self.say(found[1], room) if found[1] in self._productions else found[0]

    def choices(self, name: str) -> Sequence[str]:
        return self._productions[name]

    def join(self, parts: list[str]) -> str:
        """Put the parts of a production together that have spaces between them in the table."""
        return " ".join(parts)


def merged(common: Productions, more: Productions) -> Productions:
    """Both tables in one, with the productions of the second after those of the first."""
    return {name: (*common.get(name, ()), *more.get(name, ())) for name in {**common, **more}}
