"""How large a template may be, and how much one rendering may do.

Prometheus has no such limits. An agent that must never die of a rule file needs them: a template can double a text
again and again, or go through a query's result within a query's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alerts.template.errors import RenderError
from alerts.template.values import Element, Value

LONGEST_TEMPLATE = 65_536
"""Characters."""

DEEPEST_NESTING = 100
"""Branches and parentheses within each other; an `else if` is no level.

Rendering takes four of the 1,000 calls within each other that Python allows for a level, reading takes three; so half
of them are left to whoever calls."""

MOST_STEPS = 100_000
"""Commands and turns of loops in one rendering."""

STEPS_OF_QUERY = 100
"""For how many commands a query counts."""

MOST_CHARACTERS = 2_000_000
"""Characters that functions and the template itself make in one rendering."""

WIDEST_VERB = 1000
"""Characters that a verb of printf may be told to take."""

_LONGEST_ESCAPE = 6  # of a character, by %q
_LONGEST_NUMBER = 25  # with as few digits as tell it apart
_LONGEST_FLOAT = 310  # with all its digits before the point


class Allowance:
    """What one rendering may still do."""

    __slots__ = ("_characters", "_steps")

    def __init__(self) -> None:
        self._steps = MOST_STEPS
        self._characters = MOST_CHARACTERS

    def step(self, count: int = 1) -> None:
        """Count a command or the turn of a loop. Raises RenderError."""
        self._steps -= count
        if self._steps < 0:
            raise RenderError(f"the template takes more than {MOST_STEPS} steps; ask for fewer series")

    def make(self, characters: int) -> None:
        """Count a text that is made. Raises RenderError."""
        self._characters -= characters
        if self._characters < 0:
            raise RenderError(f"the template makes texts of more than {MOST_CHARACTERS} characters")

    def check(self, name: str, arguments: Sequence[Value]) -> None:
        """Refuse a call that could make a longer text than is left, before it does. Raises RenderError."""
        if name not in ("print", "printf", "reReplaceAll"):
            return
        lengths = [_length(each) for each in arguments]
        largest = sum(lengths)
        if name == "printf" and isinstance(arguments[0], str):
            largest = largest * _LONGEST_ESCAPE + arguments[0].count("%") * (WIDEST_VERB + _LONGEST_FLOAT)
        elif name == "reReplaceAll":
            # The matches together are no longer than the text, and a replacement has each once for two characters.
            _, replacement, text = lengths
            largest += (text + 1) * replacement + replacement // 2 * text
        if largest > self._characters:
            self.make(largest)


def _length(value: Value) -> int:
    """Characters that a value takes at most when it is printed."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Element):
        value = value.labels
    if isinstance(value, Mapping):
        return sum(len(name) + len(text) + 2 for name, text in value.items()) + _LONGEST_NUMBER
    return _LONGEST_NUMBER
