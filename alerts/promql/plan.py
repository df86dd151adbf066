"""Compiled queries: nodes that work on label sets that are computed once and cached.

Within one query every label set is *canonical*: equal sets are one object. So two label sets are equal if they are the
same object, a group is found by identity, and derived sets (its group, its matching signature, the set
without the metric name) are a look-up. The memory is bounded: when the series change too much, the cache is cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar, Union

from msgspec import Struct

from alerts.limits import MOST_REMEMBERED, SAMPLES_PER_LABEL_SET
from alerts.promql.budget import Budget
from alerts.promql.labels import SAME_LABELSET, EvaluationError, Labels
from alerts.promql.storage import AnyStore, Window, without_markers

LOOKBACK_MS = 300_000

Element = tuple[Labels, float]
Elements = list[Element]

_ALWAYS_REMEMBERED = 512
"""Samples that a query may always remember, however few it needs: some 60 label sets and derivations.

What is beyond that, and four times what an evaluation needs, is of series that have gone: jobs come and go for weeks.
"""
_TIMES_NEEDED = 4
_BATCH = 128
"""Samples of new label sets that are counted together; making one takes a unit of work."""
_TOGETHER = 512
"""Label sets that are made between two checks of the budget."""
_ENTRY = 2
"""Samples that an entry of a memory counts for, if it refers to an existing label set."""
_NO_BUDGET = Budget()
"""The budget of a query that was not evaluated yet; nothing is counted in it."""


class Steps(Struct, eq=False):
    """What all steps of the outermost subquery have seen.

    In Prometheus some functions work on series, not on elements: two series for which they make the same labels clash
    there, even if they have no step in common.
    """

    _sources: dict[tuple[int, int], Labels] = {}

    def refuse_clash(self, function: object, source: Labels, made: Labels, budget: Budget) -> None:
        """Record which (canonical) labels a function made. Raises EvaluationError if it made them of others before."""
        first = self._sources.get((id(function), id(made)))
        if first is None:
            self._sources[id(function), id(made)] = source
            budget.remember(_ENTRY)
        elif first is not source and first != source:
            raise EvaluationError(SAME_LABELSET)


class EvaluationContext(NamedTuple):
    """The context of an evaluation: the source of samples, the instant, and the budget.

    `query_ms` is the instant of the whole query, which a step of a subquery keeps; `@ start()` and `@ end()` refer to
    it. `steps` is set within a subquery (see `Steps`).
    """

    source: AnyStore
    at_ms: int
    query_ms: int
    budget: Budget
    steps: Steps | None = None


class Matrix(NamedTuple):
    """The windows of a range selector or subquery, which can be iterated over once, and the edges of the range.

    Their label sets need not be canonical. With `marked` there may be staleness markers among the values, which no
    function may see.
    """

    windows: Iterable[Window]
    start_ms: int
    end_ms: int
    marked: bool

    def is_empty(self) -> bool:
        """Return whether there is no sample; this uses the windows up."""
        if self.marked:
            return not any(without_markers(times, values)[0] for _, times, values in self.windows)
        return not any(times for _, times, _ in self.windows)


class ScalarPlan(Struct, eq=False):
    """A plan for a number; `constant` is set if the number depends neither on samples nor on the time.

    Plans are structs and no closures: a node takes some 60 bytes, a closure with its cells five times that.
    """

    @property
    def constant(self) -> float | None:
        return None

    def run(self, moment: EvaluationContext) -> float:
        """Return the number at a moment."""
        raise NotImplementedError


class _SeriesPlan(Struct, eq=False):
    """A plan that reads series.

    Most rules find nothing most of the time. `certain` and `is_barren` say where that can be known without running
    the plan; a plan that says False to both is always run.
    """

    @property
    def certain(self) -> bool:
        """Whether it raises nothing but LimitError, and no two of its elements differ only in the metric's name.

        If the elements of such a plan are not needed, it need not be run: no error goes unreported.
        """
        return False

    @property
    def is_selective(self) -> bool:
        """Whether it often gives no elements although the series exist, as a comparison with a number does."""
        return False

    def is_barren(self, moment: EvaluationContext) -> bool:
        """Return whether it gives no elements and no error, because it reads no existing series. Raises LimitError."""
        del moment
        return False


class VectorPlan(_SeriesPlan):
    """A plan for an instant vector."""

    def run(self, moment: EvaluationContext) -> Elements:
        """Return the elements at a moment."""
        raise NotImplementedError


class MatrixPlan(_SeriesPlan):
    """A plan for a range vector."""

    def run(self, moment: EvaluationContext) -> Matrix:
        """Return the windows at a moment."""
        raise NotImplementedError


class StringPlan(NamedTuple):
    """A string literal."""

    text: str


Plan = Union[ScalarPlan, VectorPlan, MatrixPlan, StringPlan]


K = TypeVar("K")
V = TypeVar("V")


class Memory(dict[K, V]):
    """What a query remembers between evaluations: it comes and goes, and is not part of the query itself."""

    __slots__ = ()


_NOTHING: Memory[Any, Any] = Memory()
"""Stands for a memory in which nothing was stored yet; it is never written to."""


class LabelFunction(Protocol):
    """Makes a label set from another one: a function, or a callable clause of a query."""

    def __call__(self, labels: Labels, /) -> Labels: ...


class Derivation(Struct, eq=False):
    """A function of canonical label sets whose results are remembered and canonical."""

    _space: LabelSpace
    _function: LabelFunction
    _memory: Memory[int, Labels] = _NOTHING

    def of(self, labels: Labels) -> Labels:
        """Return the function's result for a label set. Raises LimitError."""
        derived = self._memory.get(id(labels))
        return self._make(labels) if derived is None else derived

    def _make(self, labels: Labels) -> Labels:
        if self._memory is _NOTHING:
            self._memory = self._space.new_memory()
        derived = self._memory[id(labels)] = self._space.derived(self._function(labels))
        return derived


class PairDerivation(Struct, eq=False):
    """A function of two canonical label sets whose results are remembered."""

    _space: LabelSpace
    _function: Callable[[Labels, Labels], Labels]
    _memory: Memory[tuple[int, int], Labels] = _NOTHING

    def of(self, left: Labels, right: Labels) -> Labels:
        """Return the function's result for two label sets. Raises LimitError."""
        derived = self._memory.get((id(left), id(right)))
        return self._make(left, right) if derived is None else derived

    def _make(self, left: Labels, right: Labels) -> Labels:
        if self._memory is _NOTHING:
            self._memory = self._space.new_memory()
        derived = self._memory[id(left), id(right)] = self._space.derived(self._function(left, right))
        return derived


class ForeignDerivation(Struct, eq=False):
    """A function of label sets that are not canonical, whose results are remembered and canonical.

    Without a function the results are the label sets themselves, in a memory shared by the whole query.
    """

    _space: LabelSpace
    _function: Callable[[Labels], Labels] | None
    _memory: Memory[int, tuple[Labels, Labels]] = _NOTHING

    def all(self, labels: list[Labels], *, lasting: bool) -> list[Labels]:
        """Return the function's result for each; remembered if the label sets are `lasting` objects. Raises LimitError.

        Many are computed at once: most of a large vector's cost is in its labels.
        """
        memory = self._memory if self._function else self._space.adopted
        known = list(map(memory.get, map(id, labels))) if memory else [None]
        if None not in known:
            # Another label set's object may have the address of one that is gone.
            same = [pair[1] for pair, own in zip(known, labels, strict=True) if pair is not None and pair[0] is own]
            if len(same) == len(labels):
                return same
        derived: list[Labels] = []
        for start in range(0, len(labels), _TOGETHER):
            derived += self._make(labels[start : start + _TOGETHER], lasting)
        return derived

    def _make(self, labels: list[Labels], lasting: bool) -> list[Labels]:
        made = labels if self._function is None else list(map(self._function, labels))
        derived = self._space.canonical_all(made)
        if lasting:
            memory = self._lasting()
            memory.update(zip(map(id, labels), zip(labels, derived, strict=True), strict=True))
        self._space.grow(_ENTRY * len(labels))
        return derived

    def _lasting(self) -> Memory[int, tuple[Labels, Labels]]:
        """Return the memory to write to."""
        space = self._space
        if self._function is None:
            if space.adopted is _NOTHING:
                space.adopted = space.new_memory()
            return space.adopted
        if self._memory is _NOTHING:
            self._memory = space.new_memory()
        return self._memory


class LabelSpace:
    """The canonical label sets of one query, and every derivation from them.

    Derivations are not kept here, since they refer to this: a query is large, and must be freed at once when it is no
    longer needed. Their memories are created when there is something to remember.
    """

    __slots__ = (
        "_budget", "_canonical", "_counted", "_limit", "_memories", "_unspent", "_weight", "adopted", "lasts",
    )  # fmt: skip

    def __init__(self) -> None:
        self._canonical: Memory[Labels, Labels] = _NOTHING
        self.adopted: Memory[int, tuple[Labels, Labels]] = _NOTHING
        """The canonical objects for a source's label sets."""
        self._memories: tuple[Memory[Any, Any], ...] = ()
        self._limit: int | None = _ALWAYS_REMEMBERED
        self._budget = _NO_BUDGET
        self._weight = 0
        """All that is remembered, in samples; the part that is in the ledger's sum; what is not yet in the budget."""
        self._counted = 0
        self._unspent = 0
        self.lasts = True
        """Whether what an evaluation makes is reused by the next one, judging by the last one."""

    def begin(self, budget: Budget) -> None:
        """Begin an evaluation: what is remembered counts from the start, and new label sets as they are made.

        Clear the cache if it has much more than one evaluation needs, because series come and go. This happens only
        between evaluations, since identity is equality within one.
        """
        if self._canonical is _NOTHING:
            self._canonical = Memory()
        if self._limit is None:  # the evaluation after clearing shows what one needs
            self._limit = max(_ALWAYS_REMEMBERED, _TIMES_NEEDED * self._weight)
        if self._weight > self._limit:
            self._limit = None
            self.forget()
        if budget.ledger is not self._budget.ledger:
            self._counted = 0
        if budget is not self._budget:  # else it is counted already: a template evaluates several times
            self._budget = budget
            budget.remember(self._weight)

    def end(self) -> None:
        """End the evaluation; also clear the cache if all queries together remember too much."""
        self._budget.labels += self._unspent  # the evaluation is over, so this can no longer exceed its budget
        self._unspent = 0
        ledger = self._budget.ledger
        ledger.remembered += self._weight - self._counted
        self._counted = self._weight
        self.lasts = self._weight <= MOST_REMEMBERED
        if ledger.remembered > MOST_REMEMBERED:
            self.forget()

    def forget(self) -> None:
        """Clear the cache."""
        if self._canonical is _NOTHING:
            return  # the query was not evaluated yet
        self._budget.ledger.remembered -= self._counted
        self._budget.labels -= self._weight - self._unspent
        self._weight = self._counted = self._unspent = 0
        self._canonical.clear()
        for memory in self._memories:
            memory.clear()

    def grow(self, samples: int) -> None:
        """Count new label sets, which are remembered from now on."""
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
            self.grow(SAMPLES_PER_LABEL_SET)
        return found

    def derived(self, labels: Labels) -> Labels:
        """Return the same for a label set that a derivation made, and remembers."""
        before = len(self._canonical)
        found = self._canonical.setdefault(labels, labels)
        self.grow(_ENTRY + SAMPLES_PER_LABEL_SET * (len(self._canonical) - before))
        return found

    def canonical_all(self, labels: list[Labels]) -> list[Labels]:
        """Return the objects that stand for label sets."""
        before = len(self._canonical)
        found = list(map(self._canonical.setdefault, labels, labels))
        self.grow(SAMPLES_PER_LABEL_SET * (len(self._canonical) - before))
        return found

    def new_memory(self) -> Memory[Any, Any]:
        """Return a memory for a derivation, which is cleared with everything else."""
        memory = Memory[Any, Any]()
        self._memories += (memory,)
        return memory


def refuse_same_labels(elements: Elements) -> Elements:
    """Refuse a vector in which two elements have the same (canonical) labels."""
    if len({id(labels) for labels, _ in elements}) != len(elements):
        raise EvaluationError(SAME_LABELSET)
    return elements
