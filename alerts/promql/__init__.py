"""PromQL, evaluated over samples in memory with the semantics of Prometheus 3.

`compile_query` parses a query once and rejects what cannot be evaluated; the `Query` it returns is then evaluated at
any number of instants, over any source of samples. Nothing here reads a clock, keeps samples (except `Storage`, on
request) or knows about rules. Native histograms, and the functions for them, are not supported.
"""

from alerts.promql.labels import (
    EvaluationError,
    Labels,
    Matcher,
    PromqlError,
    Sample,
    Scalar,
    Value,
    Vector,
    make_labels,
)
from alerts.promql.query import Query, compile_query
from alerts.promql.selectors import Selector
from alerts.promql.storage import STALE, Storage, is_stale
from alerts.promql.syntax import count_tokens

__all__ = [
    "STALE", "EvaluationError", "Labels", "Matcher", "PromqlError", "Query", "Sample", "Scalar",
    "Selector", "Storage", "Value", "Vector", "compile_query", "count_tokens", "is_stale", "make_labels",
]  # fmt: skip
