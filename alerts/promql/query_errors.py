"""The two ways in which a query fails.

`PromqlError` is a query that cannot be compiled: it is invalid, or it uses what this evaluator does not support. It is
raised when a rule file is loaded, so that nothing is discovered while an alert should fire. `EvaluationError` is a
query that is valid but meets data that it must not combine; the texts are those of Prometheus, so that a search finds
them.
"""

from __future__ import annotations


class PromqlError(ValueError):
    """A rejected query, with line and column.

    Code that knows neither query nor place, such as a matcher, leaves them out; the compiler adds them.
    """

    def __init__(self, problem: str, *, position: tuple[int, int] | None = None) -> None:
        where = "" if position is None else f"line {position[0]}, column {position[1]}: "
        super().__init__(where + problem)
        self.problem = problem
        self.position = position


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


class EvaluationError(Exception):
    """A query that met samples it must not combine, as Prometheus would report it."""


class LimitError(EvaluationError):
    """An evaluation that would use more of the node's resources than any rule may (see `alerts.limits`)."""


SAME_LABELSET = "vector cannot contain metrics with the same labelset"
