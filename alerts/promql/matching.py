"""Operations between two vectors: matched one to one or many to one, and the set operators.

The errors, their texts and the order in which they are found are those of Prometheus. In particular, a comparison that
filters an element out does so before that element could count as a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from alerts.promql.labels import (
    METRIC_NAME,
    Labels,
    drop_labels,
    drop_metadata,
    format_labels,
    keep_labels,
    label_value,
    refuse_large,
    set_labels,
)
from alerts.promql.operators import ARITHMETIC, COMPARISONS
from alerts.promql.plan import Element, Elements, EvaluationContext, LabelSpace, VectorPlan, refuse_same_labels
from alerts.promql.query_errors import EvaluationError

SET_OPERATORS = ("and", "or", "unless")


class Matching(NamedTuple):
    """How elements of two vectors find each other."""

    on: bool
    labels: tuple[str, ...]
    many: str  # "", "left" or "right": the side of which several elements may match one of the other
    include: tuple[str, ...]

    def signature(self) -> Callable[[Labels], Labels]:
        """Return what the labels of two elements that match have in common."""
        if self.on:
            kept = frozenset(self.labels)
            return lambda labels: keep_labels(labels, kept)
        dropped = frozenset(self.labels) | {METRIC_NAME}
        return lambda labels: drop_labels(labels, dropped)


def vector_operation(
    space: LabelSpace, name: str, left: VectorPlan, right: VectorPlan, matching: Matching, *, as_bool: bool
) -> VectorPlan:
    """Plan arithmetic or a comparison of two vectors."""
    signature = space.derivation(matching.signature())
    result = _result_labels(space, matching, changes=name in ARITHMETIC, as_bool=as_bool)
    combine = _combine(name, as_bool=as_bool, swapped=matching.many == "right")
    one_side = "left" if matching.many == "right" else "right"
    many_run, one_run = (right.run, left.run) if matching.many == "right" else (left.run, right.run)

    def run(moment: EvaluationContext) -> Elements:
        if matching.many == "right":  # samples are read in the order of the text, so that errors come in that order
            one, many = one_run(moment), many_run(moment)
        else:
            many, one = many_run(moment), one_run(moment)
        if not many or not one:
            return []
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
            made = result(labels, partner[0])
            _take(taken, group, made, one_to_one=not matching.many)
            found.append((made, combined))
        return refuse_same_labels(found)

    return VectorPlan(run)


def _by_signature(elements: Iterable[Element], signature: Callable[[Labels], Labels], side: str) -> dict[int, Element]:
    """Index the side of which each element must be the only one of its kind."""
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


def _take(taken: set[tuple[int, int]], group: Labels, made: Labels, *, one_to_one: bool) -> None:
    """Note a result, and refuse a second one of the same group or, in many-to-one, of the same labels."""
    key = (id(group), 0 if one_to_one else id(made))
    if key in taken:
        raise EvaluationError(
            "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            if one_to_one
            else "multiple matches for labels: grouping labels must ensure unique matches"
        )
    taken.add(key)


def _combine(name: str, *, as_bool: bool, swapped: bool) -> Callable[[float, float], float | None]:
    """Return what is made of the values of the many and the one side; None where a comparison filters."""
    if name in ARITHMETIC:
        arithmetic = ARITHMETIC[name]
        return (lambda many, one: arithmetic(one, many)) if swapped else arithmetic
    compare = COMPARISONS[name]
    if as_bool:
        if swapped:
            return lambda many, one: 1.0 if compare(one, many) else 0.0
        return lambda many, one: 1.0 if compare(many, one) else 0.0
    if swapped:
        return lambda many, one: one if compare(one, many) else None
    return lambda many, one: many if compare(many, one) else None


def _result_labels(
    space: LabelSpace, matching: Matching, *, changes: bool, as_bool: bool
) -> Callable[[Labels, Labels], Labels]:
    """Return how the labels of a result come from those of the many and the one side.

    Arithmetic drops the name before other labels are included, which may bring one back; `bool` drops it at the end.
    """
    names = frozenset(matching.labels)

    def own(labels: Labels) -> Labels:
        if changes:
            labels = drop_metadata(labels)
        if not matching.many:
            labels = keep_labels(labels, names) if matching.on else drop_labels(labels, names)
        return labels

    if not matching.include:
        derive = space.derivation((lambda labels: drop_metadata(own(labels))) if as_bool else own)
        return lambda many, _one: derive(many)

    def included(many: Labels, one: Labels) -> Labels:
        made = set_labels(own(many), [(name, label_value(one, name)) for name in matching.include])
        return refuse_large(drop_metadata(made) if as_bool else made)

    return space.pair_derivation(included)


def set_operation(space: LabelSpace, name: str, left: VectorPlan, right: VectorPlan, matching: Matching) -> VectorPlan:
    """Plan `and`, `or` or `unless`."""
    signature = space.derivation(matching.signature())
    left_run, right_run = left.run, right.run

    def both(moment: EvaluationContext) -> Elements:
        kept, other = left_run(moment), right_run(moment)
        groups = {id(signature(labels)) for labels, _ in moment.budget.each(other)}
        return [element for element in moment.budget.each(kept) if id(signature(element[0])) in groups]

    def either(moment: EvaluationContext) -> Elements:
        kept, other = left_run(moment), right_run(moment)
        groups = {id(signature(labels)) for labels, _ in moment.budget.each(kept)}
        more = [element for element in moment.budget.each(other) if id(signature(element[0])) not in groups]
        return refuse_same_labels(kept + more)

    def without(moment: EvaluationContext) -> Elements:
        kept, other = left_run(moment), right_run(moment)
        groups = {id(signature(labels)) for labels, _ in moment.budget.each(other)}
        return [element for element in moment.budget.each(kept) if id(signature(element[0])) not in groups]

    return VectorPlan({"and": both, "or": either, "unless": without}[name])
