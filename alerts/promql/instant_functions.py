"""Functions of an instant vector: of its values, of its labels (`label_replace`, `label_join`), and of the whole
vector.

The arguments of label functions are literals, so an invalid expression or label name is known when the query is
compiled.
"""

import math
from collections.abc import Callable

from alerts.limits import CHARACTERS_PER_SAMPLE, LONGEST_VALUE
from alerts.promql import numbers
from alerts.promql.labels import (
    METRIC_NAME,
    Labels,
    LimitError,
    Matcher,
    PromqlError,
    label_value,
    make_labels,
    refuse_large,
    set_labels,
)
from alerts.promql.plan import (
    Derivation,
    Element,
    Elements,
    EvaluationContext,
    LabelSpace,
    MatrixPlan,
    ScalarPlan,
    VectorPlan,
    refuse_same_labels,
)
from alerts.promql.syntax.literals import is_text, quoted, readable
from alerts.regex import Expansion, Regex, RegexError, RegexLimitError, TextTooLongError

ValueFunction = Callable[[float], float]


def _sign(value: float) -> float:
    if value > 0:
        return 1.0
    return -1.0 if value < 0 else value  # zero and NaN are their own signs


VALUE_FUNCTIONS: dict[str, ValueFunction] = {
    "abs": abs,
    "ceil": numbers.ceil,
    "floor": numbers.floor,
    "sgn": _sign,
    "sqrt": numbers.square_root,
    "exp": numbers.exponential,
    "ln": lambda value: numbers.logarithm(math.log, value),
    "log2": lambda value: numbers.logarithm(math.log2, value),
    "log10": lambda value: numbers.logarithm(math.log10, value),
    "deg": lambda value: value * 180 / math.pi,
    "rad": lambda value: value * math.pi / 180,
    "atanh": numbers.area_tangent,
}
for _function in (
    math.sin, math.cos, math.tan, math.asin, math.acos, math.atan, math.sinh, math.cosh, math.tanh, math.asinh,
    math.acosh,
):  # fmt: skip
    VALUE_FUNCTIONS[_function.__name__] = numbers.total(_function)


class EachValue(VectorPlan):
    """A function of each element's value and some numbers, if any, as of `clamp`; the metric's name is lost.

    `_function` takes the numbers and returns a function of each value, or None if the result is empty.
    """

    _function: Callable[..., ValueFunction | None]
    _vector: VectorPlan
    _numbers: tuple[ScalarPlan, ...]
    _nameless: Derivation

    def is_barren(self, context: EvaluationContext) -> bool:
        return not self._numbers and self._vector.is_barren(context)

    def run(self, context: EvaluationContext) -> Elements:
        elements = self._vector.run(context)
        apply = self._function(*(number.run(context) for number in self._numbers))
        if apply is None:
            return []
        nameless = self._nameless.derive
        return refuse_same_labels(
            [(nameless(labels), apply(value)) for labels, value in context.budget.iterate(elements)]
        )


def _clamp(lower: float, upper: float) -> ValueFunction | None:
    if upper < lower:
        return None
    return lambda value: numbers.maximum(lower, numbers.minimum(upper, value))


def _round(nearest: float = 1.0) -> ValueFunction:
    # The inverse, because a division by 0.1 is less exact than a multiplication by 10.
    inverse = numbers.divide(1.0, nearest)
    return lambda value: numbers.divide(numbers.floor(value * inverse + 0.5), inverse)


NUMBERED_FUNCTIONS: dict[str, Callable[..., ValueFunction | None]] = {
    "clamp": _clamp,
    "clamp_min": lambda lower: lambda value: numbers.maximum(lower, value),
    "clamp_max": lambda upper: lambda value: numbers.minimum(upper, value),
    "round": _round,
}


class TimePlan(ScalarPlan):
    """`time()`: the instant of the evaluation."""

    def run(self, context: EvaluationContext) -> float:
        return context.at_ms / 1000


class VectorOf(VectorPlan):
    """`vector(s)`: a number as a single element without labels."""

    _space: LabelSpace
    _scalar: ScalarPlan

    def run(self, context: EvaluationContext) -> Elements:
        return [(self._space.canonical(()), self._scalar.run(context))]


class ScalarOf(ScalarPlan):
    """`scalar(v)`: the only element's value, NaN unless there is exactly one."""

    _vector: VectorPlan

    def run(self, context: EvaluationContext) -> float:
        before = context.budget.held
        elements = self._vector.run(context)
        context.budget.hold_result(before, 0)
        return elements[0][1] if len(elements) == 1 else math.nan


class SortedVector(VectorPlan):
    """`sort` and `sort_desc`: elements in the order of their values."""

    _vector: VectorPlan
    _rank: Callable[[Element], tuple[bool, float]]

    def run(self, context: EvaluationContext) -> Elements:
        return sorted(context.budget.iterate(self._vector.run(context)), key=self._rank)


class Absent(VectorPlan):
    """`absent` and `absent_over_time`: one element if the operand is empty, with the labels that its selector fixes."""

    _space: LabelSpace
    _labels: Labels
    _plan: VectorPlan | MatrixPlan

    def run(self, context: EvaluationContext) -> Elements:
        before = context.budget.held
        result = self._plan.run(context)
        present = bool(result) if isinstance(result, list) else not result.is_empty()
        context.budget.hold_result(before, 1)
        return [] if present else [(self._space.canonical(self._labels), 1.0)]


def _takes_away(matcher: Matcher, matchers: tuple[Matcher, ...]) -> bool:
    if all(m.matches("") for m in matchers if m.name == matcher.name):
        return True
    return matcher.operator in ("!=", "!~") and matcher.matches("")


def fixed_labels(matchers: tuple[Matcher, ...]) -> Labels:
    """Return the labels that a selector fixes to a value, unless a later matcher says more about them.

    The order is that in which Prometheus's storage applies matchers and then passes them to the function: those that
    remove series come last, which are the negative ones that an empty value satisfies.
    """
    fixed: dict[str, str] = {}
    named = set()
    for matcher in sorted(matchers, key=lambda m: _takes_away(m, matchers)):
        if matcher.name == METRIC_NAME:
            continue
        if matcher.operator == "=" and matcher.name not in named:
            fixed[readable(matcher.name)] = readable(matcher.value)
            named.add(matcher.name)
        else:
            fixed.pop(readable(matcher.name), None)
    return make_labels(fixed)


def replace_regex(pattern: str) -> Regex:
    """Compile the expression of a `label_replace`. Raises PromqlError, and RegexLimitError."""
    try:
        if "\\" in pattern:
            Regex(f"(?:{pattern})")  # Prometheus puts it in parentheses, which an open \Q would swallow
        return Regex(pattern, groups=True)
    except RegexLimitError:
        raise
    except RegexError as error:
        raise PromqlError(f"invalid regular expression in label_replace(): {error}") from None


def label_replace(
    space: LabelSpace, vector: VectorPlan, *, target: str, replacement: str, source: str, regex: Regex
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

    return Relabelled(vector, Derivation(space, replaced))


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

    return Relabelled(vector, Derivation(space, joined))


class Relabelled(VectorPlan):
    """The elements of a vector with other labels, and perhaps with the negatives of their values."""

    _inner: VectorPlan
    _derivation: Derivation
    _is_negative: bool = False

    def is_barren(self, context: EvaluationContext) -> bool:
        return self._inner.is_barren(context)

    def run(self, context: EvaluationContext) -> Elements:
        elements = []
        derive = self._derivation.derive
        for labels, value in context.budget.iterate(self._inner.run(context)):
            derived = derive(labels)
            if context.steps is not None:
                context.refuse_clash(self, labels, derived)
            elements.append((derived, -value if self._is_negative else value))
        return refuse_same_labels(elements)


def _with(space: LabelSpace, labels: Labels, target: str, value: str) -> Labels:
    space.grow(len(value) // CHARACTERS_PER_SAMPLE)
    return refuse_large(set_labels(labels, [(target, value)]))


def check_name(name: str, description: str) -> None:
    """Raise PromqlError if a text cannot be the name of a label."""
    if not name or not is_text(name):
        raise PromqlError(f"invalid {description}: {quoted(name)}")
