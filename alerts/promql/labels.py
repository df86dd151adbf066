"""Label sets and matchers, what a query evaluates to, and the two ways in which it fails.

A label set is an immutable tuple of (name, value), sorted by name, without empty values: an empty value and a missing
label are the same in Prometheus. The metric name is the label `__name__`. Everything here creates new tuples; nothing
caches them (see `plan.LabelSpace`).

Prometheus matches with RE2, always against the whole value, and a dot also matches a newline (see `alerts.regex`).

`PromqlError` is a query that cannot be compiled: it is invalid, or it uses what this evaluator does not support. It is
raised when a rule file is loaded, so that nothing is discovered while an alert should fire. `EvaluationError` is a
query that is valid but meets data that it must not combine; the texts are those of Prometheus, so that a search finds
them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Union

from alerts.limits import LONGEST_LABELS, LONGEST_VALUE
from alerts.regex import Regex, RegexError, TextTooLongError


class PromqlError(ValueError):
    """A rejected query. `where` is the line and column.

    Code that knows neither query nor place, such as a matcher, leaves it out; the compiler adds it.
    """

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(where + problem)
        self.problem = problem


class EvaluationError(Exception):
    """A query that met samples it must not combine, as Prometheus would report it."""


class LimitError(EvaluationError):
    """An evaluation that would use more of the node's resources than any rule may (see `alerts.limits`)."""


SAME_LABELSET = "vector cannot contain metrics with the same labelset"


METRIC_NAME = "__name__"
METADATA = frozenset((METRIC_NAME, "__type__", "__unit__"))
"""The labels that identify a metric: operations that change the number drop all three, as since Prometheus 3.5."""
_LAST_OF_METADATA = max(METADATA)
BUCKET_BOUND = "le"

Labels = tuple[tuple[str, str], ...]


def make_labels(labels: Mapping[str, str], name: str = "") -> Labels:
    """Make a label set from a mapping, with the metric's name if one is given."""
    pairs = dict(labels)
    if name:
        pairs[METRIC_NAME] = name
    return tuple(sorted((key, value) for key, value in pairs.items() if value))


def label_value(labels: Labels, name: str) -> str:
    """Return the value of a label, the empty string if it is missing."""
    for key, value in labels:
        if key == name:
            return value
    return ""


def keep_labels(labels: Labels, names: frozenset[str]) -> Labels:
    """Return only the named labels."""
    return tuple(pair for pair in labels if pair[0] in names)


def drop_labels(labels: Labels, names: frozenset[str]) -> Labels:
    """Return all but the named labels."""
    return tuple(pair for pair in labels if pair[0] not in names)


def drop_name(labels: Labels) -> Labels:
    """Return all but the metric's name."""
    return tuple(pair for pair in labels if pair[0] != METRIC_NAME)


def drop_metadata(labels: Labels) -> Labels:
    """Return the labels of a number computed from a metric's: all but its name, type and unit."""
    if labels and labels[0][0] == METRIC_NAME and (len(labels) == 1 or labels[1][0] > _LAST_OF_METADATA):
        return labels[1:]  # labels are sorted: nearly all series have the name first, and neither type nor unit
    return tuple(pair for pair in labels if pair[0] not in METADATA)


def set_labels(labels: Labels, changes: Iterable[tuple[str, str]]) -> Labels:
    """Return the label set with some labels set; an empty value removes the label."""
    changed = dict(changes)
    pairs = [pair for pair in labels if pair[0] not in changed]  # keep the same objects: they are most of the memory
    pairs += [pair for pair in changed.items() if pair[1]]
    return tuple(sorted(pairs))


def refuse_large(labels: Labels) -> Labels:
    """Return a label set that a query or template made. Raises LimitError if it is unreasonably large."""
    longest = total = 0
    for _, value in labels:
        total += len(value)
        longest = max(longest, len(value))
    if longest > LONGEST_VALUE:
        raise LimitError(f"a label value has {longest} characters; the limit is {LONGEST_VALUE}")
    if total > LONGEST_LABELS:
        raise LimitError(f"the values of a label set have {total} characters; the limit is {LONGEST_LABELS}")
    return labels


def format_labels(labels: Labels) -> str:
    """Write a label set as Prometheus does in its errors."""
    return "{" + ", ".join(f"{name}={_quote(value)}" for name, value in labels) + "}"


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class Matcher:
    """One matcher of a selector: a label's name, `=`, `!=`, `=~` or `!~`, and a value or regular expression."""

    __slots__ = ("_hash", "matches", "name", "operator", "value")

    def __init__(self, name: str, operator: str, value: str) -> None:
        self.name = name
        self.operator = operator
        self.value = value
        self._hash = hash((name, operator, value))
        self.matches: Callable[[str], bool] = _predicate(operator, value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Matcher):
            return NotImplemented
        return (self.name, self.operator, self.value) == (other.name, other.operator, other.value)

    def __repr__(self) -> str:
        return f"{self.name}{self.operator}{self.value!r}"


def _predicate(operator: str, value: str) -> Callable[[str], bool]:
    if operator == "=":
        return value.__eq__
    if operator == "!=":
        return value.__ne__
    if operator == "=~":
        return _expression(value)
    if operator == "!~":
        is_whole = _expression(value)
        return lambda text: not is_whole(text)
    raise ValueError(f"unknown matcher {operator!r}: use one of = != =~ !~")


def _expression(pattern: str) -> Callable[[str], bool]:
    try:
        is_whole = Regex(pattern).predicate()
    except RegexError as error:
        raise PromqlError(f"regular expression {pattern!r}: {error}") from None

    def matches(text: str) -> bool:
        try:
            return is_whole(text)
        except TextTooLongError as error:
            raise LimitError(f"regular expression {pattern!r}: {error}") from None

    return matches


def only_metric_name(matchers: tuple[Matcher, ...]) -> str | None:
    """Return the one metric name that can match, or None if the name is left open."""
    for matcher in matchers:
        if matcher.name == METRIC_NAME and matcher.operator == "=":
            return matcher.value
    return None


def match_all(matchers: tuple[Matcher, ...], labels: Labels) -> bool:
    """Return whether a label set satisfies every matcher; a missing label reads as empty."""
    return all(matcher.matches(label_value(labels, matcher.name)) for matcher in matchers)


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Labels
    value: float


class Scalar(NamedTuple):
    """A number without labels."""

    value: float


Vector = list[Sample]
Value = Union[Vector, Scalar]
