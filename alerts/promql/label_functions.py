"""`label_replace` and `label_join`: functions that change labels and leave values alone.

Their arguments are literals, so an invalid expression or label name is known when the query is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alerts.limits import LONGEST_VALUE, TEXT
from alerts.promql.labels import Labels, label_value, refuse_large, set_labels
from alerts.promql.plan import Derivation, Elements, EvaluationContext, LabelSpace, VectorPlan, refuse_same_labels
from alerts.promql.query_errors import LimitError, PromqlError
from alerts.promql.syntax.literals import is_text, quoted, readable
from alerts.regex import Expansion, Regex, RegexError, RegexLimitError, TextTooLongError, compile_regex


def replace_regex(pattern: str) -> Regex:
    """Compile the expression of a `label_replace`. Raises PromqlError, and RegexLimitError."""
    try:
        if "\\" in pattern:
            compile_regex(f"(?:{pattern})")  # Prometheus puts it in parentheses, which an open \Q would swallow
        return compile_regex(pattern, groups=True)
    except RegexLimitError:
        raise
    except RegexError as error:
        raise PromqlError(f"invalid regular expression in label_replace(): {error}") from None


def label_replace(
    space: LabelSpace, vector: VectorPlan, target: str, replacement: str, source: str, regex: Regex
) -> VectorPlan:
    """Plan `label_replace`: where the source's whole value matches, set the target."""
    check_name(target, "destination label name in label_replace()")
    expansion = Expansion(readable(replacement), regex.names)

    def replaced(labels: Labels) -> Labels:
        try:
            value = regex.expanded(label_value(labels, source), expansion, LONGEST_VALUE)
        except TextTooLongError as error:
            raise LimitError(f"label_replace(): {error}") from None
        return labels if value is None else _with(space, labels, target, value)

    return _relabelled(space, vector, replaced)


def label_join(space: LabelSpace, vector: VectorPlan, target: str, separator: str, sources: list[str]) -> VectorPlan:
    """Plan `label_join`: set the target to the sources' values, joined."""
    for source in sources:
        check_name(source, "source label name in label_join()")
    check_name(target, "destination label name in label_join()")
    separator = readable(separator)

    def joined(labels: Labels) -> Labels:
        values = [label_value(labels, source) for source in sources]
        length = sum(map(len, values)) + len(separator) * (len(values) - 1)
        if length > LONGEST_VALUE:
            raise LimitError(f"label_join(): the value would have {length} characters; the limit is {LONGEST_VALUE}")
        return _with(space, labels, target, separator.join(values))

    return _relabelled(space, vector, joined)


def _relabelled(space: LabelSpace, vector: VectorPlan, function: Callable[[Labels], Labels]) -> VectorPlan:
    return _Relabelled(vector, Derivation(space, function))


@dataclass(slots=True, eq=False, repr=False)
class _Relabelled(VectorPlan):
    """The elements of a vector with other labels."""

    _inner: VectorPlan
    _derivation: Derivation

    def is_barren(self, moment: EvaluationContext) -> bool:
        return self._inner.is_barren(moment)

    def run(self, moment: EvaluationContext) -> Elements:
        found = []
        derive = self._derivation.of
        for labels, value in moment.budget.each(self._inner.run(moment)):
            made = derive(labels)
            if moment.steps is not None:
                moment.steps.refuse_clash(self, labels, made, moment.budget)
            found.append((made, value))
        return refuse_same_labels(found)


def _with(space: LabelSpace, labels: Labels, target: str, value: str) -> Labels:
    space.grow(len(value) // TEXT)
    return refuse_large(set_labels(labels, [(target, value)]))


def check_name(name: str, what: str) -> None:
    """Raise PromqlError if a text cannot be the name of a label."""
    if not name or not is_text(name):
        raise PromqlError(f"invalid {what}: {quoted(name)}")
