"""`label_replace` and `label_join`: functions that change labels and leave values alone.

Their texts are literals, so a bad expression or label name is refused when the query is compiled, not when it runs.
"""

from __future__ import annotations

from collections.abc import Callable

from alerts.limits import LONGEST_VALUE, TEXT
from alerts.promql.errors import LimitError, PromqlError
from alerts.promql.labels import Labels, label_value, refuse_large, set_labels
from alerts.promql.plan import Elements, LabelSpace, Moment, VectorPlan, refuse_same_labels
from alerts.regex import Expansion, Regex, TextTooLongError, compile_regex


def replace_regex(pattern: str) -> Regex:
    """Compile the expression of a `label_replace`. Raises RegexError."""
    compile_regex(f"(?:{pattern})")  # Prometheus puts it in brackets, which an open \Q would swallow
    return compile_regex(pattern, groups=True)


def label_replace(
    space: LabelSpace, vector: VectorPlan, target: str, replacement: str, source: str, regex: Regex
) -> VectorPlan:
    """Plan `label_replace`: where the source's value matches as a whole, set the target."""
    _check_name(target, "label_replace")
    expansion = Expansion(replacement, regex.names)

    def replaced(labels: Labels) -> Labels:
        try:
            value = regex.expanded(label_value(labels, source), expansion, LONGEST_VALUE)
        except TextTooLongError as error:
            raise LimitError(f"label_replace(): {error}") from None
        return labels if value is None else _with(space, labels, target, value)

    return _relabelled(space, vector, replaced)


def label_join(space: LabelSpace, vector: VectorPlan, target: str, separator: str, sources: list[str]) -> VectorPlan:
    """Plan `label_join`: set the target to the sources' values, joined."""
    _check_name(target, "label_join")
    for source in sources:
        _check_name(source, "label_join")

    def joined(labels: Labels) -> Labels:
        values = [label_value(labels, source) for source in sources]
        length = sum(map(len, values)) + len(separator) * (len(values) - 1)
        if length > LONGEST_VALUE:
            raise LimitError(f"label_join(): the value would have {length} characters: the most are {LONGEST_VALUE}")
        return _with(space, labels, target, separator.join(values))

    return _relabelled(space, vector, joined)


def _relabelled(space: LabelSpace, vector: VectorPlan, function: Callable[[Labels], Labels]) -> VectorPlan:
    derive = space.derivation(function)
    inner = vector.run

    def run(moment: Moment) -> Elements:
        return refuse_same_labels([(derive(labels), value) for labels, value in moment.budget.each(inner(moment))])

    return VectorPlan(run)


def _with(space: LabelSpace, labels: Labels, target: str, value: str) -> Labels:
    space.grow(len(value) // TEXT)
    return refuse_large(set_labels(labels, [(target, value)]))


def _check_name(name: str, function: str) -> None:
    if not name:
        raise PromqlError(f"invalid label name {name!r} in {function}()")
