"""Parses the text of a query into a tree, with the grammar and the type checks of Prometheus 3.5.

All stable syntax is accepted here, whether it can be evaluated or not; syntax behind a feature flag is rejected by
name. Whatever the text, the only error is `PromqlError`, and time and memory are linear in the text and bounded.
"""

from alerts.promql.labels import Labels
from alerts.promql.syntax.clauses import read_metric
from alerts.promql.syntax.grammar import Grammar
from alerts.promql.syntax.scanner import FlawError, Scanner
from alerts.promql.syntax.tree import Expression

__all__ = ["count_tokens", "parse", "parse_metric"]


def parse(text: str) -> Expression:
    """Return the tree of a query. Raises PromqlError, with Prometheus's words if it has any for the error."""
    try:
        return Grammar(text).query()
    except FlawError as flaw:
        raise flaw.in_query(text) from None


def parse_metric(text: str) -> Labels:
    """Return the labels of a metric such as `up{job="a"}`, its name among them. Raises PromqlError."""
    try:
        return read_metric(Scanner(text))
    except FlawError as flaw:
        raise flaw.in_query(text) from None


def count_tokens(text: str) -> int:
    """Return the number of words, numbers and signs of a text, up to the first that is invalid; 0 if it is too long."""
    try:
        return len(Scanner(text).kinds) - 1
    except FlawError:
        return 0
