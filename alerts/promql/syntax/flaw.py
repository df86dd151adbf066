"""An error in a query and its offset, before lines are counted."""

from __future__ import annotations


class FlawError(Exception):
    """A problem at an offset of the text; code that has the text turns it into a `PromqlError`."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem
