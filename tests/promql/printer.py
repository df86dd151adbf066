"""Trees of queries written as text again."""

from __future__ import annotations

import json
import math
import re

from alerts.promql import Matcher
from alerts.promql.syntax import tree


def show(node: tree.Expression) -> str:
    """The text of a tree, for which parsing gives the tree."""
    match node:
        case tree.NumberLiteral(value):
            return repr(value) if math.isfinite(value) else "NaN" if value != value else "-Inf" if value < 0 else "Inf"
        case tree.StringLiteral(value):
            return _quoted(value)
        case tree.VectorSelector():
            return _selector(node) + _modifiers(node)
        case tree.MatrixSelector(selector, range_ns):
            return f"{_selector(selector)}[{_duration(range_ns)}]{_modifiers(selector)}"
        case tree.Subquery(inner, range_ns, step_ns):
            step = "" if step_ns is None else _duration(step_ns)
            return f"{show(inner)}[{_duration(range_ns)}:{step}]{_modifiers(node)}"
        case tree.UnaryExpr(operator, operand):
            return f"{operator}{show(operand)}"
        case tree.BinaryExpr():
            return f"{show(node.left)} {node.operator}{_matching(node)} {show(node.right)}"
        case tree.ParenExpr(inner):
            return f"({show(inner)})"
        case tree.AggregateExpr():
            parameter = "" if node.parameter is None else f"{show(node.parameter)}, "
            return f"{node.operator} {_grouping(node)}({parameter}{show(node.operand)})"
        case tree.FunctionCall(name, arguments):
            return f"{name}({', '.join(map(show, arguments))})"


def _quoted(text: str) -> str:
    """As a literal. What no query may hold as it is becomes an escape: U+FFFD, and bytes that are no UTF-8."""
    written = json.dumps(text, ensure_ascii=False).replace("\ufffd", "\\ufffd")
    return re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", written)


def _selector(node: tree.VectorSelector) -> str:
    matchers = node.matchers[1:] if node.name else node.matchers
    return node.name + ("{" + ", ".join(map(_matcher, matchers)) + "}" if matchers else "")


def _matcher(matcher: Matcher) -> str:
    return f"{_quoted(matcher.name)}{matcher.operator}{_quoted(matcher.value)}"


def _modifiers(node: tree.VectorSelector | tree.Subquery) -> str:
    offset = f" offset {_duration(node.offset_ns)}" if node.offset_ns else ""
    if node.bound is None:
        return offset
    instant = node.bound.instant
    return f" @ {instant!r}{offset}" if isinstance(instant, float) else f" @ {instant}(){offset}"


def _duration(nanoseconds: int) -> str:
    sign, nanoseconds = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if nanoseconds % 1_000_000:
        return f"{sign}{nanoseconds / 1e9!r}"
    return f"{sign}{nanoseconds // 1_000_000}ms"


def _labels(labels: tuple[str, ...]) -> str:
    return "(" + ", ".join(map(_quoted, labels)) + ")"


def _grouping(node: tree.AggregateExpr) -> str:
    grouping = node.grouping
    if grouping.without:
        return f"without {_labels(grouping.labels)} "
    return f"by {_labels(grouping.labels)} " if grouping.labels else ""


def _matching(node: tree.BinaryExpr) -> str:
    matching = node.matching
    words = " bool" if node.as_bool else ""
    if matching.on or matching.labels or matching.many:
        words += f" {'on' if matching.on else 'ignoring'} {_labels(matching.labels)}"
    if matching.many:
        words += f" group_{matching.many} {_labels(matching.include)}"
    return words
