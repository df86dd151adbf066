"""An error in a query with its offset, before lines are counted; and limits on the size of a query.

Prometheus has no such limits; an agent that must never crash on a rule file needs them.
"""

from __future__ import annotations


class FlawError(Exception):
    """A problem at an offset of the text; code that has the text turns it into a `PromqlError`."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem


LONGEST_TEXT = 65_536
"""Characters of a query. The longest expressions of well-known rule collections have some 4,000."""

MOST_TOKENS = 10_000
"""Words, numbers, texts and signs of a query. Each node, matcher and label of a tree takes at least one, so this bounds
the tree and its plan: 1.5 KiB a token at worst, 15 MiB a query."""

DEEPEST = 100
"""Levels of nesting: brackets, signs, arguments and right-hand operands. A row of operators as in `a or b or c` is one
level, however long it is.

Python allows 1,000 nested calls. Parsing and compiling take at most five of them for a level, evaluating takes three,
so half of them are left to the caller."""
