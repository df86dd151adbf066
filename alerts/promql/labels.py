"""Label sets: immutable tuples of (name, value), sorted by name, without empty values.

An empty value and a missing label are the same in Prometheus, so empty ones are never stored. The metric
name is the label `__name__`. Everything here creates new tuples; nothing caches them (see `plan.LabelSpace`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alerts.limits import LONGEST_LABELS, LONGEST_VALUE
from alerts.promql.query_errors import LimitError

METRIC_NAME = "__name__"
METADATA = frozenset((METRIC_NAME, "__type__", "__unit__"))
"""The labels that identify a metric: operations that change the number drop all three, as since Prometheus 3.5."""
_LAST_OF_METADATA = max(METADATA)
BUCKET_BOUND = "le"

Labels = tuple[tuple[str, str], ...]

NO_LABELS: Labels = ()


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
