"""What a query is compiled to: closures over label sets that are worked out once and remembered.

Within one query every label set is *canonical*: equal sets are one object. So two label sets are equal if they are the
same object, a group is found by identity, and what a label set turns into (its group, its matching signature, itself
without the metric's name) is a look-up. The memory is bounded: when the series change too much, it starts anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Union

from alerts.promql.errors import SAME_LABELSET, EvaluationError
from alerts.promql.labels import Labels
from alerts.promql.storage import Newest, Source, Window

LOOKBACK_MS = 300_000

Element = tuple[Labels, float]
Elements = list[Element]

_ALWAYS_REMEMBERED = 1024
"""Label sets and derivations that a query may remember without being asked how many it needs."""
_TIMES_NEEDED = 4


class Moment(NamedTuple):
    """The instant of an evaluation: where samples come from, and when it is.

    `query_ms` is the instant of the whole query, which a step of a subquery keeps; `@ start()` and `@ end()` mean it.
    """

    source: Source
    newest: Callable[..., list[Newest]]
    at_ms: int
    query_ms: int


class Matrix(NamedTuple):
    """The windows of a range selector or subquery, and the edges of the range."""

    windows: Sequence[Window]
    start_ms: int
    end_ms: int


class ScalarPlan(NamedTuple):
    """A plan for a number; `constant` is set where the number does not depend on the samples or the time."""

    run: Callable[[Moment], float]
    constant: float | None = None


class VectorPlan(NamedTuple):
    """A plan for an instant vector."""

    run: Callable[[Moment], Elements]


class MatrixPlan(NamedTuple):
    """A plan for a range vector."""

    run: Callable[[Moment], Matrix]


class StringPlan(NamedTuple):
    """A string literal."""

    text: str


Plan = Union[ScalarPlan, VectorPlan, MatrixPlan, StringPlan]


class LabelSpace:
    """The canonical label sets of one query, and every derivation from them."""

    def __init__(self) -> None:
        self._canonical: dict[Labels, Labels] = {}
        self._memories: list[dict[int, Labels]] = []
        self._pair_memories: list[dict[tuple[int, int], Labels]] = []
        self._foreign: dict[int, tuple[Labels, Labels]] = {}
        self._limit: int | None = _ALWAYS_REMEMBERED

    def canonical(self, labels: Labels) -> Labels:
        """Return the one object that stands for a label set."""
        return self._canonical.setdefault(labels, labels)

    def adopt(self, labels: Labels) -> Labels:
        """Return the canonical object for a label set of a source, which keeps its own objects."""
        known = self._foreign.get(id(labels))
        if known is not None and known[0] is labels:
            return known[1]
        adopted = self.canonical(labels)
        self._foreign[id(labels)] = (labels, adopted)
        return adopted

    def derivation(self, function: Callable[[Labels], Labels]) -> Callable[[Labels], Labels]:
        """Remember what a function makes of canonical label sets."""
        memory: dict[int, Labels] = {}
        self._memories.append(memory)

        def derive(labels: Labels) -> Labels:
            derived = memory.get(id(labels))
            if derived is None:
                derived = memory[id(labels)] = self.canonical(function(labels))
            return derived

        return derive

    def pair_derivation(self, function: Callable[[Labels, Labels], Labels]) -> Callable[[Labels, Labels], Labels]:
        """Remember what a function makes of two canonical label sets."""
        memory: dict[tuple[int, int], Labels] = {}
        self._pair_memories.append(memory)

        def derive(left: Labels, right: Labels) -> Labels:
            key = (id(left), id(right))
            derived = memory.get(key)
            if derived is None:
                derived = memory[key] = self.canonical(function(left, right))
            return derived

        return derive

    def size(self) -> int:
        """Return how much is remembered."""
        return len(self._canonical) + len(self._foreign) + sum(map(len, self._pair_memories))

    def trim(self) -> None:
        """Start anew when much more is remembered than one evaluation needs: series come and go.

        Only between evaluations, since identity is equality within one.
        """
        size = self.size()
        if self._limit is None:  # the evaluation after a new start shows what one needs
            self._limit = max(_ALWAYS_REMEMBERED, _TIMES_NEEDED * size)
        if size <= self._limit:
            return
        self._limit = None
        self._canonical.clear()
        self._foreign.clear()
        for memory in self._memories:
            memory.clear()
        for pair_memory in self._pair_memories:
            pair_memory.clear()


def refuse_same_labels(elements: Elements) -> Elements:
    """Refuse a vector in which two elements have the same (canonical) labels."""
    if len({id(labels) for labels, _ in elements}) != len(elements):
        raise EvaluationError(SAME_LABELSET)
    return elements
