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
    space: LabelSpace, name: str, left: VectorPlan, right: VectorPlan, matching: Matching, *, as_bool: bool
) -> VectorPlan:
    """Plan arithmetic or a comparison of two vectors."""
    result = _Result(matching, name in ARITHMETIC, as_bool)
    return _OfVectors(
        left,
        right,
        matching.many,
        _combine(name, as_bool, matching.many == "right"),
        Derivation(space, matching.signature),
        PairDerivation(space, result.included) if matching.include else Derivation(space, result.own),
    )


def _settles(side: VectorPlan, other: VectorPlan, moment: EvaluationContext) -> bool:
    """Return whether one side is barren, and so the whole operation, which needs both."""
    return side.is_barren(moment) and (other.certain or other.is_barren(moment))


def _both_sides(left: VectorPlan, right: VectorPlan, moment: EvaluationContext) -> tuple[Elements, Elements] | None:
    """Return the elements of both sides, in the order of the text; None if the left has none, and the right, which
    gives no error, need not run.
    """
    these = left.run(moment)
    if not these and right.certain:
        return None
    return these, right.run(moment)


class _OfVectors(VectorPlan):
    """A function of each two matching elements. `many` is the side of which several may match one of the other."""

    _left: VectorPlan
    _right: VectorPlan
    _many: str
    _combine: Callable[[float, float], float | None]
    _signature: Derivation
    _result: Derivation | PairDerivation

    def is_barren(self, moment: EvaluationContext) -> bool:
        return _settles(self._left, self._right, moment) or _settles(self._right, self._left, moment)

    def run(self, moment: EvaluationContext) -> Elements:
        sides = _both_sides(self._left, self._right, moment)
        if sides is None or not all(sides):
            return []
        left, right = sides
        many, one, one_side = (right, left, "left") if self._many == "right" else (left, right, "right")
        signature, combine, result = self._signature.of, self._combine, self._result
        partners = _by_signature(moment.budget.each(one), signature, one_side)
        found: Elements = []
        taken: set[tuple[int, int]] = set()
        for labels, value in moment.budget.each(many):
            group = signature(labels)
            partner = partners.get(id(group))
            if partner is None:
                continue
            combined = combine(value, partner[1])
            if combined is None:
                continue
            made = result.of(labels) if isinstance(result, Derivation) else result.of(labels, partner[0])
            key = (id(group), id(made) if self._many else 0)
            if key in taken:
                raise EvaluationError(
                    "multiple matches for labels: grouping labels must ensure unique matches" if self._many
                    else "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                )  # fmt: skip
            taken.add(key)
            found.append((made, combined))
        return refuse_same_labels(found)


def _by_signature(elements: Iterable[Element], signature: Callable[[Labels], Labels], side: str) -> dict[int, Element]:
    """Return an index of the side on which each signature must be unique."""
    found: dict[int, Element] = {}
    for element in elements:
        group = signature(element[0])
        first = found.setdefault(id(group), element)
        if first is not element:
            raise EvaluationError(
                f"found duplicate series for the match group {format_labels(group)} on the {side} hand-side of the "
                f"operation: [{format_labels(element[0])}, {format_labels(first[0])}];many-to-many matching not "
                "allowed: matching labels must be unique on one side"
            )
    return found


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
        made = self._kept(labels)
        return drop_metadata(made) if self.as_bool else made

    def included(self, many: Labels, one: Labels) -> Labels:
        """Return the many side's labels with those included from the one side."""
        made = set_labels(self._kept(many), [(name, label_value(one, name)) for name in self.matching.include])
        return refuse_large(drop_metadata(made) if self.as_bool else made)

    def _kept(self, labels: Labels) -> Labels:
        if self.changes:
            labels = drop_metadata(labels)
        if self.matching.many:
            return labels
        names = frozenset(self.matching.labels)
        return keep_labels(labels, names) if self.matching.on else drop_labels(labels, names)


class _And(VectorPlan):
    """Elements that have a match on the other side; with `unless`, those that have none."""

    _left: VectorPlan
    _right: VectorPlan
    _signature: Derivation
    _unless: bool

    @property
    def certain(self) -> bool:
        return self._left.certain and self._right.certain

    def is_barren(self, moment: EvaluationContext) -> bool:
        if _settles(self._left, self._right, moment):
            return True
        return not self._unless and _settles(self._right, self._left, moment)

    def run(self, moment: EvaluationContext) -> Elements:
        sides = _both_sides(self._left, self._right, moment)
        if sides is None:
            return []
        kept, other = sides
        signature = self._signature.of
        groups = {id(signature(labels)) for labels, _ in moment.budget.each(other)}
        elements = moment.budget.each(kept)
        if self._unless:
            return [element for element in elements if id(signature(element[0])) not in groups]
        return [element for element in elements if id(signature(element[0])) in groups]


class _Or(VectorPlan):
    """Elements of the left side, and those of the right side that have no match there."""

    _left: VectorPlan
    _right: VectorPlan
    _signature: Derivation

    def is_barren(self, moment: EvaluationContext) -> bool:
        return self._left.is_barren(moment) and self._right.is_barren(moment)

    def run(self, moment: EvaluationContext) -> Elements:
        kept, other = self._left.run(moment), self._right.run(moment)
        signature = self._signature.of
        groups = {id(signature(labels)) for labels, _ in moment.budget.each(kept)}
        more = [element for element in moment.budget.each(other) if id(signature(element[0])) not in groups]
        return refuse_same_labels(kept + more)


def set_operation(space: LabelSpace, name: str, left: VectorPlan, right: VectorPlan, matching: Matching) -> VectorPlan:
    """Plan `and`, `or` or `unless`."""
    signature = Derivation(space, matching.signature)
    return _Or(left, right, signature) if name == "or" else _And(left, right, signature, name == "unless")
