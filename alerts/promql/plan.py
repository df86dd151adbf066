"""Compiled queries: closures over label sets that are computed once and cached.

Within one query every label set is *canonical*: equal sets are one object. So two label sets are equal if they are the
same object, a group is found by identity, and derived sets (its group, its matching signature, the set
without the metric name) are a look-up. The memory is bounded: when the series change too much, the cache is cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar, Union

from alerts.limits import LABEL_SET, MOST_REMEMBERED
from alerts.promql.budget import Budget
from alerts.promql.labels import Labels
from alerts.promql.query_errors import SAME_LABELSET, EvaluationError
from alerts.promql.staleness import without_markers
from alerts.promql.storage import Newest, SampleSource, Window

LOOKBACK_MS = 300_000

Element = tuple[Labels, float]
Elements = list[Element]

_ALWAYS_REMEMBERED = 4096
"""Samples that a query may remember without being asked how many it needs: some 500 label sets and derivations."""
_TIMES_NEEDED = 4
_BATCH = 128
"""Samples of what was made that are counted together; to make one takes a unit of work."""
_TOGETHER = 512
"""Label sets that are made between two looks at what an evaluation may take."""
_ENTRY = 2
"""Samples that an entry of a memory counts, which finds a label set that is there already."""


class Steps:
    """What all steps of the outermost subquery have seen.

    Some functions work on series, not on elements, in Prometheus: two series of which they make the same labels clash
    there, also where they have no step in common.
    """

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: dict[tuple[int, int], Labels] = {}

    def refuse_clash(self, function: object, source: Labels, made: Labels, budget: Budget) -> None:
        """Note which (canonical) labels a function made. Raises EvaluationError where it made them of others before."""
        first = self._sources.get((id(function), id(made)))
        if first is None:
            self._sources[id(function), id(made)] = source
            budget.remember(_ENTRY)
        elif first is not source and first != source:
            raise EvaluationError(SAME_LABELSET)


class EvaluationContext(NamedTuple):
    """The instant of an evaluation: where samples come from, when it is, and what it may take.

    `query_ms` is the instant of the whole query, which a step of a subquery keeps; `@ start()` and `@ end()` mean it.
    `forgetful` is a source that keeps samples for as long as rules look back from now. `steps` is there within a
    subquery (see `Steps`).
    """

    source: SampleSource
    newest: Callable[..., list[Newest]]
    at_ms: int
    query_ms: int
    budget: Budget
    forgetful: bool = False
    steps: Steps | None = None


class Matrix(NamedTuple):
    """The windows of a range selector or subquery, to be gone through once, and the edges of the range.

    Their label sets need not be canonical. With `marked` there may be staleness markers among the values, which no
    function is to see.
    """

    windows: Iterable[Window]
    start_ms: int
    end_ms: int
    marked: bool

    def is_empty(self) -> bool:
        """Whether there is no sample; the windows are gone through."""
        if self.marked:
            return not any(without_markers(times, values)[0] for _, times, values in self.windows)
        return not any(times for _, times, _ in self.windows)


class ScalarPlan(NamedTuple):
    """A plan for a number; `constant` is set where the number does not depend on the samples or the time."""

    run: Callable[[EvaluationContext], float]
    constant: float | None = None


class VectorPlan(NamedTuple):
    """A plan for an instant vector."""

    run: Callable[[EvaluationContext], Elements]


class MatrixPlan(NamedTuple):
    """A plan for a range vector."""

    run: Callable[[EvaluationContext], Matrix]


class StringPlan(NamedTuple):
    """A string literal."""

    text: str


Plan = Union[ScalarPlan, VectorPlan, MatrixPlan, StringPlan]


K = TypeVar("K")
V = TypeVar("V")


class Memory(dict[K, V]):
    """What a query remembers from one evaluation to the next: it comes and goes, and is no part of the query itself."""

    __slots__ = ()


class ForeignDerivation:
    """What a function makes of label sets that are not canonical, remembered; what it makes is canonical.

    Many are done at a time: most of a large vector's cost is in its labels.
    """

    __slots__ = ("_canonical", "_function", "_grow", "_memory")

    def __init__(
        self,
        function: Callable[[Labels], Labels],
        memory: Memory[int, tuple[Labels, Labels]],
        canonical: Memory[Labels, Labels],
        grow: Callable[[int], None],
    ) -> None:
        self._function = function
        self._memory = memory
        self._canonical = canonical
        self._grow = grow

    def all(self, labels: list[Labels], *, lasting: bool) -> list[Labels]:
        """What the function makes of each; remembered if it is `lasting`, and asked for again. Raises LimitError."""
        known = list(map(self._memory.get, map(id, labels))) if self._memory else [None]
        if None not in known:
            # An object of another label set may have taken the place of one that is gone.
            same = [pair[1] for pair, own in zip(known, labels, strict=True) if pair is not None and pair[0] is own]
            if len(same) == len(labels):
                return same
        derived: list[Labels] = []
        for start in range(0, len(labels), _TOGETHER):
            derived += self._make(labels[start : start + _TOGETHER], lasting)
        return derived

    def _make(self, labels: list[Labels], lasting: bool) -> list[Labels]:
        before = len(self._canonical)
        made = list(map(self._function, labels))
        derived = list(map(self._canonical.setdefault, made, made))
        if lasting:
            self._memory.update(zip(map(id, labels), zip(labels, derived, strict=True), strict=True))
        self._grow(_ENTRY * len(labels) + LABEL_SET * (len(self._canonical) - before))
        return derived


def _same(labels: Labels) -> Labels:
    return labels


class LabelSpace:
    """The canonical label sets of one query, and every derivation from them."""

    def __init__(self) -> None:
        self._canonical = Memory[Labels, Labels]()
        self._memories: list[Memory[int, Labels]] = []
        self._pair_memories: list[Memory[tuple[int, int], Labels]] = []
        self._foreign_memories: list[Memory[int, tuple[Labels, Labels]]] = []
        self._adopted = Memory[int, tuple[Labels, Labels]]()
        self._foreign_memories.append(self._adopted)
        self._limit: int | None = _ALWAYS_REMEMBERED
        self._budget = Budget()
        self._weight = 0
        """All that is remembered, counted in samples; what of it is in the ledger's sum, and not yet in the budget."""
        self._counted = 0
        self._unspent = 0
        self.lasts = True
        """Whether what an evaluation makes is there for the next one, as far as the last one shows."""

    def __len__(self) -> int:
        """Return the number of label sets that are remembered."""
        return len(self._canonical)

    def begin(self, budget: Budget) -> None:
        """An evaluation begins: what is remembered counts from the start, and what is made as it comes.

        Start anew when much more is remembered than one evaluation needs: series come and go. Only between evaluations,
        since identity is equality within one.
        """
        if self._limit is None:  # the evaluation after a new start shows what one needs
            self._limit = max(_ALWAYS_REMEMBERED, _TIMES_NEEDED * self._weight)
        if self._weight > self._limit:
            self._limit = None
            self.forget()
        if budget.ledger is not self._budget.ledger:
            self._counted = 0
        if budget is not self._budget:  # which has it already, where a template asks again and again
            self._budget = budget
            budget.remember(self._weight)

    def end(self) -> None:
        """The evaluation is over: start anew as well when all queries together remember too much."""
        self._budget.labels += self._unspent  # the evaluation is over: no reason to refuse it any more
        self._unspent = 0
        ledger = self._budget.ledger
        ledger.remembered += self._weight - self._counted
        self._counted = self._weight
        self.lasts = self._weight <= MOST_REMEMBERED
        if ledger.remembered > MOST_REMEMBERED:
            self.forget()

    def forget(self) -> None:
        """Start anew."""
        self._budget.ledger.remembered -= self._counted
        self._budget.labels -= self._weight - self._unspent
        self._weight = self._counted = self._unspent = 0
        self._canonical.clear()
        for foreign in self._foreign_memories:
            foreign.clear()
        for memory in self._memories:
            memory.clear()
        for pair_memory in self._pair_memories:
            pair_memory.clear()

    def grow(self, samples: int) -> None:
        """Count what was made, and is remembered from now on."""
        self._weight += samples
        self._unspent += samples
        if self._unspent >= _BATCH:
            made, self._unspent = self._unspent, 0
            self._budget.remember(made)
            self._budget.spend(made)

    def canonical(self, labels: Labels) -> Labels:
        """Return the one object that stands for a label set."""
        before = len(self._canonical)
        found = self._canonical.setdefault(labels, labels)
        if len(self._canonical) > before:
            self.grow(LABEL_SET)
        return found

    @property
    def adopt(self) -> ForeignDerivation:
        """Gives the canonical objects for label sets of a source.

        It is not kept here, since it holds this: a query is large, and is to go at once when nobody needs it any more.
        """
        return ForeignDerivation(_same, self._adopted, self._canonical, self.grow)

    def foreign_derivation(self, function: Callable[[Labels], Labels]) -> ForeignDerivation:
        """Remember what a function makes of label sets as a source has them, which keeps its own objects."""
        memory = Memory[int, tuple[Labels, Labels]]()
        self._foreign_memories.append(memory)
        return ForeignDerivation(function, memory, self._canonical, self.grow)

    def derivation(self, function: Callable[[Labels], Labels]) -> Callable[[Labels], Labels]:
        """Remember what a function makes of canonical label sets."""
        memory = Memory[int, Labels]()
        self._memories.append(memory)

        def derive(labels: Labels) -> Labels:
            derived = memory.get(id(labels))
            if derived is None:
                derived = memory[id(labels)] = self.canonical(function(labels))
                self.grow(_ENTRY)
            return derived

        return derive

    def pair_derivation(self, function: Callable[[Labels, Labels], Labels]) -> Callable[[Labels, Labels], Labels]:
        """Remember what a function makes of two canonical label sets."""
        memory = Memory[tuple[int, int], Labels]()
        self._pair_memories.append(memory)

        def derive(left: Labels, right: Labels) -> Labels:
            key = (id(left), id(right))
            derived = memory.get(key)
            if derived is None:
                derived = memory[key] = self.canonical(function(left, right))
                self.grow(_ENTRY)
            return derived

        return derive


def refuse_same_labels(elements: Elements) -> Elements:
    """Refuse a vector in which two elements have the same (canonical) labels."""
    if len({id(labels) for labels, _ in elements}) != len(elements):
        raise EvaluationError(SAME_LABELSET)
    return elements
