"""A compiled query: evaluates it at an instant, says what it reads, and where its text has numbers."""

import gc
from collections.abc import Iterator, Sequence

from alerts.promql.budget import Budget
from alerts.promql.compiler import compile_text
from alerts.promql.labels import Sample, Scalar, Value
from alerts.promql.plan import EvaluationContext, LabelSpace, ScalarPlan, VectorPlan
from alerts.promql.selectors import Selector
from alerts.promql.storage import AnyStore, to_milliseconds
from alerts.promql.syntax.literals import number_value
from alerts.promql.syntax.scanner import Scanner


def number_literals(text: str) -> Iterator[tuple[int, str, float]]:
    """Return offset, text and value of each number, without its sign; ranges, offsets and other durations are not
    numbers.

    The text is that of a query that compiles.
    """
    tokens = Scanner(text)
    in_brackets = False
    before = ""
    for kind, written, start in zip(tokens.kinds, tokens.texts, tokens.starts, strict=True):
        if kind in ("[", "]"):
            in_brackets = kind == "["
        elif kind == "number" and not written.isalpha() and not in_brackets and before not in ("offset", "@"):
            yield start, written, number_value(written)
        if kind not in ("+", "-"):
            before = kind


DEFAULT_STEP_SECONDS = 60.0
_new = tuple.__new__


class Query:
    """A query that has been compiled; it keeps nothing of the samples that it has seen."""

    __slots__ = ("_barren", "_plan", "_space", "inevitable_error", "selectors", "text")

    def __init__(
        self,
        text: str,
        plan: ScalarPlan | VectorPlan,
        space: LabelSpace,
        selectors: Sequence[Selector],
        inevitable_error: str = "",
    ) -> None:
        self.text = text
        self.inevitable_error = inevitable_error
        """Why each evaluation fails, with line and column; empty if it need not fail."""
        self.selectors = tuple(selectors)
        self._plan = plan
        self._space = space
        self._barren: tuple[object, bool] = (None, False)
        """A version of a source, and whether the query is barren in it."""

    def evaluate(self, source: AnyStore, at: float, budget: Budget | None = None) -> Value:
        """Evaluate at an instant (seconds since the epoch, taken to the millisecond).

        Without a budget, it has that of one evaluation, but no deadline. Raises EvaluationError.
        """
        budget = budget or Budget()
        at_ms = to_milliseconds(at)
        context = EvaluationContext(source, at_ms, at_ms, budget)
        if self.is_barren(source, budget):
            return []
        self._space.begin(source, budget)
        # Everything that an evaluation makes is freed by reference counts. Garbage collections meanwhile find nothing,
        # and with a hundred thousand elements take as long as all the rest.
        collects = gc.isenabled()
        gc.disable()
        try:
            if isinstance(self._plan, ScalarPlan):
                return Scalar(self._plan.run(context))
            # Bypasses the constructor of named tuples, which takes twice as long.
            return [_new(Sample, element) for element in budget.iterate(self._plan.run(context))]
        finally:
            self._space.end()
            if collects:
                gc.enable()

    def is_barren(self, source: AnyStore, budget: Budget) -> bool:
        """Return True if every evaluation gives no elements and no error until the source has other series.

        Many rules are for hardware that a node lacks. The source is searched only after a series came or went. Raises
        LimitError.
        """
        version = source.version
        if self._barren[0] is not version:
            context = EvaluationContext(source, 0, 0, budget)
            self._barren = (version, isinstance(self._plan, VectorPlan) and self._plan.is_barren(context))
        return self._barren[1]

    def __repr__(self) -> str:
        return f"Query({self.text!r})"


def compile_query(text: str, *, default_step: float = DEFAULT_STEP_SECONDS, lasting: bool = True) -> Query:
    """Compile a query; `default_step` is the step of subqueries without one, in seconds.

    Without `lasting` it remembers no label sets between evaluations.

    Raises `PromqlError` for text that is not a query and for what this evaluator does not support.
    """
    plan, space, selectors, inevitable_error = compile_text(text, to_milliseconds(default_step))
    space.lasting = space.lasting and lasting
    return Query(text, plan, space, selectors, inevitable_error)
