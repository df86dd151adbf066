"""Texts of a grammar that is a table: queries, expressions, templates and rule files that nobody would think of."""

import random
import re
from collections.abc import Mapping, Sequence

Productions = Mapping[str, Sequence[str]]
"""What each name may stand for. `<name>` in a production is one of that name's; any other `<` is itself."""
_NAME = re.compile(r"<([a-z_]+)>")


class Grammar:
    """Say texts; names that lead back to themselves take their first production once there is no room.

    `odd` has productions of some names that are taken instead, as often as `oddness` says.
    """

    def __init__(self, productions: Productions, dice: random.Random, odd: Productions | None = None) -> None:
        self.dice = dice
        self.oddness = 0.0
        self._productions, self._odd = productions, odd or {}
        self._nested = {name for name in productions if name in self._reached(name)}

    def say(self, name: str, room: int) -> str:
        """Return one of a name's texts, with at most `room` names that lead back to themselves inside one another."""
        choices = self._productions[name]
        if name in self._odd and self.dice.random() < self.oddness:
            choices = self._odd[name]
        elif name in self._nested:
            choices, room = choices if room > 0 else choices[:1], room - 1
        chosen = self.dice.choice(choices)
        if not _NAME.search(chosen):
            return chosen
        return self.join([_NAME.sub(lambda found: self._said(found, room), part) for part in chosen.split(" ")])

    def _said(self, found: re.Match[str], room: int) -> str:
        return self.say(found[1], room) if found[1] in self._productions else found[0]

    def join(self, parts: list[str]) -> str:
        """Put the parts of a production together that have spaces between them in the table."""
        return " ".join(parts)

    def _reached(self, start: str) -> set[str]:
        """Return the names that a name leads to."""
        found, waiting = set[str](), [start]
        while waiting:
            texts = (*self._productions[waiting[-1]], *self._odd.get(waiting.pop(), ()))
            named = {each for text in texts for each in _NAME.findall(text) if each in self._productions}
            waiting += named - found
            found |= named
        return found
