"""Compiled queries: nodes that work on label sets that are computed once and remembered.

Within one query every label set is *canonical*: equal sets are one object, which is the source's where it has such a
series. So two label sets are equal if they are the same object, a group is found by identity, and derived sets (its
group, its matching signature, the set without the metric name) are a look-up.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Union

from msgspec import Struct

from alerts.limits import MOST_REMEMBERED, SAMPLES_PER_LABEL_SET
from alerts.promql.budget import Budget
from alerts.promql.labels import SAME_LABELSET, EvaluationError, Labels
from alerts.promql.storage import AnyStore, Window, without_markers

LOOKBACK_MS = 300_000

Element = tuple[Labels, float]
Elements = list[Element]

_ENTRY = 2
"""Samples that an entry of a memory counts for, if it refers to an existing label set."""
_NO_BUDGET = Budget()
"""The budget of a query that was not evaluated yet; nothing is counted in it."""


class EvaluationContext(NamedTuple):
    """The context of an evaluation: the source of samples, the instant, and the budget.

    `query_ms` is the instant of the whole query, which a step of a subquery keeps; `@ start()` and `@ end()` refer to
    it. `steps` is set within a subquery: of what labels its functions made which, in all steps of the outermost one.
    """

    source: AnyStore
    at_ms: int
    query_ms: int
    budget: Budget
    steps: dict[tuple[int, int], Labels] | None = None

    def refuse_clash(self, function: object, source: Labels, result: Labels) -> None:
        """Record which (canonical) labels a function made. Raises EvaluationError if it made them of others before.

        In Prometheus some functions work on series, not on elements: two series for which they make the same labels
        clash there, even if they have no step in common.
        """
        assert self.steps is not None, "there is a subquery"
        first = self.steps.get((id(function), id(result)))
        if first is None:
            self.steps[id(function), id(result)] = source
            self.budget.remember(_ENTRY)
        elif first is not source:
            raise EvaluationError(SAME_LABELSET)


class Matrix(NamedTuple):
    """The windows of a range selector or subquery, which can be iterated over once, and the edges of the range.

    With `marked` there may be staleness markers among the values, which no function may see.
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

    def run(self, context: EvaluationContext) -> float:
        """Return the number at a context."""
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

    def is_barren(self, context: EvaluationContext) -> bool:
        """Return whether it gives no elements and no error, because it reads no existing series. Raises LimitError."""
        del context
        return False


class VectorPlan(_SeriesPlan):
    """A plan for an instant vector."""

    def run(self, context: EvaluationContext) -> Elements:
        """Return the elements at a context."""
        raise NotImplementedError


class MatrixPlan(_SeriesPlan):
    """A plan for a range vector."""

    def run(self, context: EvaluationContext) -> Matrix:
        """Return the windows at a context."""
        raise NotImplementedError


class StringPlan(NamedTuple):
    """A string literal."""

    text: str


Plan = Union[ScalarPlan, VectorPlan, MatrixPlan, StringPlan]


class LabelSpace:
    """The label sets that one query makes, and what its derivations remember.

    They are kept until the source has other series, because most evaluations make those of the one before. A query
    whose label sets depend on values, or that is seldom evaluated, need not be `lasting`.
    """

    __slots__ = ("_budget", "_canonical", "_counted", "_source", "_version", "_weight", "lasting", "memories")

    def __init__(self) -> None:
        self.lasting = True
        self.memories: list[dict[Any, Labels]] = []
        """Of the derivations, which refer to this: without them there is no cycle, and a query is freed at once."""
        self._canonical: dict[Labels, Labels] = {}
        self._source: AnyStore | None = None
        self._version: object = None
        self._budget = _NO_BUDGET
        self._weight = 0
        """All that is remembered, in samples."""
        self._counted = 0
        """The part of it that is in the ledger's sum."""

    def begin(self, source: AnyStore, budget: Budget) -> None:
        """Begin an evaluation: what is remembered counts from the start, and new label sets as they are made."""
        if source.version is not self._version:
            self._forget()
            self._version = source.version
        if budget.ledger is not self._budget.ledger:
            self._counted = 0
        self._source, self._budget = source, budget
        budget.remember(self._weight)

    def end(self) -> None:
        """End the evaluation; forget all if all queries together remember too much."""
        ledger = self._budget.ledger
        ledger.remembered += self._weight - self._counted
        self._counted = self._weight
        self._source = None
        if not self.lasting or ledger.remembered > MOST_REMEMBERED:
            self._forget()

    def _forget(self) -> None:
        self._budget.ledger.remembered -= self._counted
        self._budget.labels -= self._weight
        self._weight = self._counted = 0
        self._canonical.clear()
        for memory in self.memories:
            memory.clear()

    def grow(self, samples: int) -> None:
        """Count what is remembered from now on. Raises LimitError."""
        self._weight += samples
        self._budget.remember(samples)
        self._budget.spend(samples)

    def canonical(self, labels: Labels) -> Labels:
        """Return the one object that stands for a label set: that of the source, if it has such a series."""
        canonical_labels = self._canonical.get(labels)
        if canonical_labels is None:
            assert self._source is not None, "only an evaluation makes label sets"
            canonical_labels = self._canonical[labels] = self._source.same_labels(labels)
            self.grow(SAMPLES_PER_LABEL_SET)
        return canonical_labels

    def derived(self, labels: Labels) -> Labels:
        """Return the same for a label set that a derivation remembers."""
        self.grow(_ENTRY)
        return self.canonical(labels)


class Derivation(Struct, eq=False):
    """A function of a canonical label set whose results are remembered and canonical."""

    _space: LabelSpace
    _function: Callable[[Labels], Labels]
    _memory: dict[int, Labels] = {}

    def __post_init__(self) -> None:
        self._space.memories.append(self._memory)

    def derive(self, labels: Labels) -> Labels:
        """Return the function's result for a label set. Raises LimitError."""
        derived = self._memory.get(id(labels))
        if derived is None:
            derived = self._memory[id(labels)] = self._space.derived(self._function(labels))
        return derived


class PairDerivation(Struct, eq=False):
    """A function of two canonical label sets whose results are remembered and canonical."""

    _space: LabelSpace
    _function: Callable[[Labels, Labels], Labels]
    _memory: dict[tuple[int, int], Labels] = {}

    def __post_init__(self) -> None:
        self._space.memories.append(self._memory)

    def derive(self, many: Labels, one: Labels) -> Labels:
        """Return the function's result for two label sets. Raises LimitError."""
        derived = self._memory.get((id(many), id(one)))
        if derived is None:
            derived = self._memory[id(many), id(one)] = self._space.derived(self._function(many, one))
        return derived


def refuse_same_labels(elements: Elements) -> Elements:
    """Refuse a vector in which two elements have the same (canonical) labels."""
    if len({id(labels) for labels, _ in elements}) != len(elements):
        raise EvaluationError(SAME_LABELSET)
    return elements
