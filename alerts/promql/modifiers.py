"""What stands beside the nodes of the parser's tree: matchers, offsets, grouping, matching; some is refused."""

from __future__ import annotations

from datetime import timedelta

import promql_parser as parser

from alerts.promql.aggregations import Grouping
from alerts.promql.errors import PromqlError
from alerts.promql.labels import METRIC_NAME
from alerts.promql.matchers import Matcher
from alerts.promql.matching import Matching
from alerts.promql.selectors import Timing

# Pairs, and not mappings: the library's enumerations compare, but do not hash.
_OPERATORS = (
    (parser.MatchOp.Equal, "="),
    (parser.MatchOp.NotEqual, "!="),
    (parser.MatchOp.Re, "=~"),
    (parser.MatchOp.NotRe, "!~"),
)


def milliseconds(duration: timedelta | None) -> int:
    """Return a duration in whole milliseconds."""
    return 0 if duration is None else duration // timedelta(milliseconds=1)


def _operator(matcher: parser.Matcher) -> str:
    return next(text for operator, text in _OPERATORS if operator == matcher.op)


def matchers_of(node: parser.VectorSelector) -> tuple[Matcher, ...]:
    """Return the matchers of a selector, the metric's name first."""
    if getattr(node.matchers, "or_matchers", None):
        raise PromqlError("alternative matchers ('or' between the braces) are not PromQL", construct="or")
    named = [Matcher(METRIC_NAME, "=", node.name)] if node.name else []
    return tuple(named + [Matcher(each.name, _operator(each), each.value) for each in node.matchers.matchers])


def timing_of(node: parser.VectorSelector | parser.SubqueryExpr) -> Timing:
    """Return a selector's offset, and whether it is bound to the query's instant by `@ start()` or `@ end()`."""
    if node.at is not None and node.at.type == parser.AtModifierType.At:
        raise PromqlError(
            "'@' with a fixed time is not supported: samples are kept for as long as the rules look back, no longer; "
            "use offset, or @ end()",
            construct="@",
        )
    return Timing(milliseconds(node.offset), node.at is not None)


def grouping_of(modifier: parser.AggModifier | None) -> Grouping:
    """Return the grouping of an aggregation."""
    if modifier is None:
        return Grouping(without=False, labels=())
    return Grouping(modifier.type == parser.AggModifierType.Without, tuple(modifier.labels))


def matching_of(modifier: parser.BinModifier | None) -> Matching:
    """Return how an operator matches its operands."""
    if modifier is None:
        return Matching(on=False, labels=(), many="", include=())
    many = ""
    if modifier.card == parser.VectorMatchCardinality.ManyToOne:
        many = "left"
    elif modifier.card == parser.VectorMatchCardinality.OneToMany:
        many = "right"
    on = modifier.matching is not None and modifier.matching.type == parser.LabelModifierType.Include
    labels = () if modifier.matching is None else tuple(modifier.matching.labels)
    return Matching(on, labels, many, tuple(modifier.group_labels or ()))


def refuse_fill(modifier: parser.BinModifier | None) -> None:
    fill = getattr(modifier, "fill_values", None)
    if fill is not None and (fill.lhs is not None or fill.rhs is not None):
        name = "fill" if fill.lhs == fill.rhs else "fill_left" if fill.rhs is None else "fill_right"
        raise PromqlError(f"modifier {name} is not supported: use 'or' with a vector of the default", construct=name)
