"""Answers of ours and of a real Prometheus, in one shape, and whether they are the same."""

import math
from typing import Any, NamedTuple

from alerts.promql import EvaluationError, PromqlError, Scalar, compile_query
from alerts.promql.storage import AnyStore

Answer = Any
"""A number, a text, a list of labels and values, or a `Refusal`."""


class Refusal(NamedTuple):
    """An error; `at_load` where the query is refused before it is evaluated."""

    text: str
    at_load: bool


def ours(source: AnyStore, query: str, at: float) -> Answer:
    try:
        compiled = compile_query(query)
    except PromqlError as error:
        return Refusal(str(error), at_load=True)
    try:
        value = compiled.evaluate(source, at)
    except EvaluationError as error:
        return Refusal(str(error), at_load=False)
    if isinstance(value, Scalar):
        return value.value
    return [(dict(sample.labels), sample.value) for sample in value]


def theirs(answer: Any) -> Answer:
    """Of what `Oracle.ask` gives."""
    if isinstance(answer, str):
        return Refusal(answer, at_load="parse error" in answer)
    kind, result = answer["resultType"], answer["result"]
    if kind in ("matrix", "string"):
        return Refusal("no result of a rule", at_load=True)
    if kind == "scalar":
        return float(result[1])
    return [(each["metric"], float(each["value"][1]) if "value" in each else each["histogram"]) for each in result]


def same_number(left: float, right: float, relative: float, absolute: float) -> bool:
    if not isinstance(left, float) or not isinstance(right, float):
        return False
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=relative, abs_tol=absolute)


def same(
    left: Answer, right: Answer, *, ordered: bool = False, relative: float = 1e-9, absolute: float = 1e-12
) -> bool:
    """Whether two answers are the same; of errors only that both are."""
    if isinstance(left, Refusal) or isinstance(right, Refusal):
        return isinstance(left, Refusal) and isinstance(right, Refusal)
    if isinstance(left, float) and isinstance(right, float):
        return same_number(left, right, relative, absolute)
    if not isinstance(left, list) or not isinstance(right, list):
        return type(left) is type(right) and bool(left == right)
    if len(left) != len(right):
        return False
    if not ordered:
        left, right = (sorted(each, key=lambda pair: sorted(pair[0].items())) for each in (left, right))
    return all(a[0] == b[0] and same_number(a[1], b[1], relative, absolute) for a, b in zip(left, right, strict=True))
