"""Operations between two vectors: matched one to one or many to one, and the set operators.

The errors, their texts and the order in which they are found are those of Prometheus. In particular, a comparison that
filters an element out does so before that element could count as a duplicate.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from alerts.promql.labels import (
    METRIC_NAME,
    EvaluationError,
    Labels,
    drop_labels,
    drop_metadata,
    format_labels,
    keep_labels,
    label_value,
    refuse_large,
    set_labels,
)
from alerts.promql.operators import ARITHMETIC, COMPARISONS, NUMBER_FUNCTIONS
from alerts.promql.plan import (
    Derivation,
    Element,
    Elements,
    EvaluationContext,
    LabelSpace,
    PairDerivation,
    VectorPlan,
    refuse_same_labels,
)

SET_OPERATORS = ("and", "or", "unless")


class Matching(NamedTuple):
    """How elements of two vectors are matched."""

    on: bool
    labels: tuple[str, ...]
    many: str  # "", "left" or "right": the side with several elements for one of the other
    include: tuple[str, ...]

    def signature(self, labels: Labels) -> Labels:
        """Return the part of the labels that matching elements have in common."""
        if self.on:
            return keep_labels(labels, frozenset(self.labels))
        return drop_labels(labels, frozenset(self.labels) | {METRIC_NAME})


def vector_operation(
    space: LabelSpace, name: str, lhs: VectorPlan, rhs: VectorPlan, matching: Matching, *, as_bool: bool
) -> VectorPlan:
    """Plan arithmetic or a comparison of two vectors."""
    result = _Result(matching, name in ARITHMETIC, as_bool)
    return _OfVectors(
        lhs,
        rhs,
        matching.many,
        _combine(name, as_bool, matching.many == "right"),
        Derivation(space, matching.signature),
        PairDerivation(space, result.included) if matching.include else Derivation(space, result.own),
    )


def _makes_barren(side: VectorPlan, other: VectorPlan, context: EvaluationContext) -> bool:
    """Return whether one side is barren, and so the whole operation, which needs both."""
    return side.is_barren(context) and (other.certain or other.is_barren(context))


def _both_sides(lhs: VectorPlan, rhs: VectorPlan, context: EvaluationContext) -> tuple[Elements, Elements] | None:
    """Return the elements of both sides, in the order of the text; None if the left has none, and the right, which
    gives no error, need not run.
    """
    elements = lhs.run(context)
    if not elements and rhs.certain:
        return None
    return elements, rhs.run(context)


class _OfVectors(VectorPlan):
    """A function of each two matching elements. `many` is the side of which several may match one of the other."""

    _lhs: VectorPlan
    _rhs: VectorPlan
    _many: str
    _combine: Callable[[float, float], float | None]
    _signature: Derivation
    _result: Derivation | PairDerivation

    def is_barren(self, context: EvaluationContext) -> bool:
        return _makes_barren(self._lhs, self._rhs, context) or _makes_barren(self._rhs, self._lhs, context)

    def run(self, context: EvaluationContext) -> Elements:
        sides = _both_sides(self._lhs, self._rhs, context)
        if sides is None or not all(sides):
            return []
        lhs, rhs = sides
        many, one, one_side = lhs, rhs, "right"
        if self._many == "right":
            many, one, one_side = rhs, lhs, "left"
        signature, combine, result = self._signature.derive, self._combine, self._result
        partners = _by_signature(context.budget.iterate(one), signature, one_side)
        elements: Elements = []
        combined_groups: set[tuple[int, int]] = set()
        for labels, value in context.budget.iterate(many):
            group = signature(labels)
            partner = partners.get(id(group))
            if partner is None:
                continue
            combined = combine(value, partner[1])
            if combined is None:
                continue
            result_labels = (
                result.derive(labels) if isinstance(result, Derivation) else result.derive(labels, partner[0])
            )
            key = (id(group), id(result_labels) if self._many else 0)
            if key in combined_groups:
                raise EvaluationError(
                    "multiple matches for labels: grouping labels must ensure unique matches"
                    if self._many
                    else "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                )
            combined_groups.add(key)
            elements.append((result_labels, combined))
        return refuse_same_labels(elements)


def _by_signature(elements: Iterable[Element], signature: Callable[[Labels], Labels], side: str) -> dict[int, Element]:
    """Return an index of the side on which each signature must be unique."""
    by_group: dict[int, Element] = {}
    for element in elements:
        group = signature(element[0])
        first = by_group.setdefault(id(group), element)
        if first is not element:
            raise EvaluationError(
                f"found duplicate series for the match group {format_labels(group)} on the {side} hand-side of the "
                f"operation: [{format_labels(element[0])}, {format_labels(first[0])}];many-to-many matching not "
                "allowed: matching labels must be unique on one side"
            )
    return by_group


@cache
def _combine(name: str, as_bool: bool, swapped: bool) -> Callable[[float, float], float | None]:
    """Return the function of the values of the many and the one side; it gives None where a comparison filters."""
    if as_bool or name in ARITHMETIC:
        function = NUMBER_FUNCTIONS[name]
        return (lambda many, one: function(one, many)) if swapped else function
    compare = COMPARISONS[name]
    if swapped:
        return lambda many, one: one if compare(one, many) else None
    return lambda many, one: many if compare(many, one) else None


class _Result(NamedTuple):
    """How the labels of a result are made from those of the many and the one side.

    Arithmetic drops the name before other labels are included, which may bring one back; `bool` drops it at the end.
    """

    matching: Matching
    changes: bool
    as_bool: bool

    def own(self, labels: Labels) -> Labels:
        """Return what is left of the many side's labels if no others are included."""
        own_labels = self._kept(labels)
        return drop_metadata(own_labels) if self.as_bool else own_labels

    def included(self, many: Labels, one: Labels) -> Labels:
        """Return the many side's labels with those included from the one side."""
        included_labels = set_labels(
            self._kept(many), [(name, label_value(one, name)) for name in self.matching.include]
        )
        return refuse_large(drop_metadata(included_labels) if self.as_bool else included_labels)

    def _kept(self, labels: Labels) -> Labels:
        if self.changes:
            labels = drop_metadata(labels)
        if self.matching.many:
            return labels
        names = frozenset(self.matching.labels)
        return keep_labels(labels, names) if self.matching.on else drop_labels(labels, names)


class _And(VectorPlan):
    """Elements that have a match on the other side; with `unless`, those that have none."""

    _lhs: VectorPlan
    _rhs: VectorPlan
    _signature: Derivation
    _unless: bool

    @property
    def certain(self) -> bool:
        return self._lhs.certain and self._rhs.certain

    def is_barren(self, context: EvaluationContext) -> bool:
        if _makes_barren(self._lhs, self._rhs, context):
            return True
        return not self._unless and _makes_barren(self._rhs, self._lhs, context)

    def run(self, context: EvaluationContext) -> Elements:
        sides = _both_sides(self._lhs, self._rhs, context)
        if sides is None:
            return []
        kept, other = sides
        signature = self._signature.derive
        groups = {id(signature(labels)) for labels, _ in context.budget.iterate(other)}
        elements = context.budget.iterate(kept)
        if self._unless:
            return [element for element in elements if id(signature(element[0])) not in groups]
        return [element for element in elements if id(signature(element[0])) in groups]


class _Or(VectorPlan):
    """Elements of the left side, and those of the right side that have no match there."""

    _lhs: VectorPlan
    _rhs: VectorPlan
    _signature: Derivation

    def is_barren(self, context: EvaluationContext) -> bool:
        return self._lhs.is_barren(context) and self._rhs.is_barren(context)

    def run(self, context: EvaluationContext) -> Elements:
        kept, other = self._lhs.run(context), self._rhs.run(context)
        signature = self._signature.derive
        groups = {id(signature(labels)) for labels, _ in context.budget.iterate(kept)}
        more = [element for element in context.budget.iterate(other) if id(signature(element[0])) not in groups]
        return refuse_same_labels(kept + more)


def set_operation(space: LabelSpace, name: str, lhs: VectorPlan, rhs: VectorPlan, matching: Matching) -> VectorPlan:
    """Plan `and`, `or` or `unless`."""
    signature = Derivation(space, matching.signature)
    return _Or(lhs, rhs, signature) if name == "or" else _And(lhs, rhs, signature, name == "unless")
