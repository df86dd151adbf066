"""Texts out of a grammar and a seed: queries, templates and rule files that nobody would think of."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

Rules = Mapping[str, Sequence[str]]
_NAME = re.compile(r"<([a-z_]+)>")


class Grammar:
    """Say texts. A rule has alternatives, in which `<name>` stands for a text of the rule of that name.

    A rule that leads back to itself takes its first alternative once there is no room, so that one must lead out.
    `odd` has further alternatives of some rules, which are taken as often as `oddness` says.
    """

    def __init__(self, rules: Rules, dice: random.Random, odd: Rules | None = None) -> None:
        self._rules, self._dice, self._odd = rules, dice, odd or {}
        self._nested = {name for name in rules if name in self._reached(name)}
        self.oddness = 0.0

    def say(self, name: str, room: int) -> str:
        """Return a text of a rule, with at most `room` rules that lead back to themselves inside one another."""
        choices = self._rules[name]
        if name in self._odd and self._dice.random() < self.oddness:
            choices = self._odd[name]
        elif name in self._nested:
            choices, room = choices if room > 0 else choices[:1], room - 1
        chosen = self._dice.choice(choices)
        return _NAME.sub(lambda found: self.say(found[1], room) if found[1] in self._rules else found[0], chosen)

    def _reached(self, start: str) -> set[str]:
        """Return the rules that a rule leads to."""
        found, waiting = set[str](), [start]
        while waiting:
            texts = (*self._rules[waiting[-1]], *self._odd.get(waiting.pop(), ()))
            named = {each for text in texts for each in _NAME.findall(text) if each in self._rules}
            waiting += named - found
            found |= named
        return found
