"""`label_replace` and `label_join`: functions that change labels and leave values alone.

Their texts are literals, so a bad expression or label name is refused when the query is compiled, not when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from alerts.promql.errors import PromqlError
from alerts.promql.labels import Labels, label_value, set_labels
from alerts.promql.matchers import compile_regex
from alerts.promql.plan import LabelSpace, VectorPlan, refuse_same_labels

# Go's template: $$, $name, ${name}; a name is as long as it can be.
_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})", re.ASCII)


def label_replace(
    space: LabelSpace, vector: VectorPlan, target: str, replacement: str, source: str, pattern: str
) -> VectorPlan:
    """Plan `label_replace`: where the source's value matches as a whole, set the target."""
    _check_name(target, "label_replace")
    regex = compile_regex(pattern)
    expand = _template(replacement, regex)

    def replaced(labels: Labels) -> Labels:
        found = regex.fullmatch(label_value(labels, source))
        return labels if found is None else set_labels(labels, [(target, expand(found))])

    return _relabelled(space, vector, replaced)


def label_join(space: LabelSpace, vector: VectorPlan, target: str, separator: str, sources: list[str]) -> VectorPlan:
    """Plan `label_join`: set the target to the sources' values, joined."""
    _check_name(target, "label_join")
    for source in sources:
        _check_name(source, "label_join")

    def joined(labels: Labels) -> Labels:
        return set_labels(labels, [(target, separator.join(label_value(labels, source) for source in sources))])

    return _relabelled(space, vector, joined)


def _relabelled(space: LabelSpace, vector: VectorPlan, function: Callable[[Labels], Labels]) -> VectorPlan:
    derive = space.derivation(function)
    inner = vector.run
    return VectorPlan(lambda moment: refuse_same_labels([(derive(labels), value) for labels, value in inner(moment)]))


def _check_name(name: str, function: str) -> None:
    if not name:
        raise PromqlError(f"invalid label name {name!r} in {function}()", construct=function)


def _template(replacement: str, regex: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """Read a replacement text once; a reference to a group that does not exist, or took no part, is empty."""
    parts: list[str | int] = []
    last = 0
    for found in _REFERENCE.finditer(replacement):
        parts.append(replacement[last : found.start()])
        last = found.end()
        if found.group(1):
            parts.append("$")
            continue
        name = found.group(2) or found.group(3)
        number = int(name) if name.isdigit() else regex.groupindex.get(name, -1)
        if 0 <= number <= regex.groups:
            parts.append(number)
    parts.append(replacement[last:])
    return lambda found: "".join(part if isinstance(part, str) else found.group(part) or "" for part in parts)
