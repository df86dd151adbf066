"""The functions of Prometheus 3.5: their argument and result types, and which of them are behind a feature flag."""

from __future__ import annotations

from typing import NamedTuple

from alerts.promql.syntax.tree import ValueType

_SCALAR, _STRING, _VECTOR, _MATRIX = ValueType.SCALAR, ValueType.STRING, ValueType.VECTOR, ValueType.MATRIX


class Signature(NamedTuple):
    """The types of a function's arguments, and of its result.

    `least` arguments are required; `most` is None if the last type may be repeated any number of times.
    """

    takes: tuple[ValueType, ...]
    gives: ValueType
    least: int
    most: int | None


def _fixed(*takes: ValueType, gives: ValueType = _VECTOR) -> Signature:
    return Signature(takes, gives, len(takes), len(takes))


def _optional(*takes: ValueType) -> Signature:
    return Signature(takes, _VECTOR, len(takes) - 1, len(takes))


def _repeated(*takes: ValueType) -> Signature:
    return Signature(takes, _VECTOR, len(takes) - 1, None)


_OF_VECTOR = """
abs absent acos acosh asin asinh atan atanh ceil cos cosh deg exp floor histogram_avg histogram_count histogram_stddev
histogram_stdvar histogram_sum ln log10 log2 rad sgn sin sinh sort sort_desc sqrt tan tanh timestamp
"""
_OF_MATRIX = """
absent_over_time avg_over_time changes count_over_time delta deriv idelta increase irate last_over_time max_over_time
min_over_time present_over_time rate resets stddev_over_time stdvar_over_time sum_over_time
"""
_OF_TIME = "day_of_month day_of_week day_of_year days_in_month hour minute month year"

SIGNATURES: dict[str, Signature] = {
    **dict.fromkeys(_OF_VECTOR.split(), _fixed(_VECTOR)),
    **dict.fromkeys(_OF_MATRIX.split(), _fixed(_MATRIX)),
    **dict.fromkeys(_OF_TIME.split(), _optional(_VECTOR)),
    "clamp": _fixed(_VECTOR, _SCALAR, _SCALAR),
    "clamp_max": _fixed(_VECTOR, _SCALAR),
    "clamp_min": _fixed(_VECTOR, _SCALAR),
    "histogram_fraction": _fixed(_SCALAR, _SCALAR, _VECTOR),
    "histogram_quantile": _fixed(_SCALAR, _VECTOR),
    "label_join": _repeated(_VECTOR, _STRING, _STRING, _STRING),
    "label_replace": _fixed(_VECTOR, _STRING, _STRING, _STRING, _STRING),
    "pi": _fixed(gives=_SCALAR),
    "predict_linear": _fixed(_MATRIX, _SCALAR),
    "quantile_over_time": _fixed(_SCALAR, _MATRIX),
    "round": _optional(_VECTOR, _SCALAR),
    "scalar": _fixed(_VECTOR, gives=_SCALAR),
    "time": _fixed(gives=_SCALAR),
    "vector": _fixed(_SCALAR),
}

EXPERIMENTAL_FUNCTIONS = (
    "double_exponential_smoothing",
    "info",
    "mad_over_time",
    "sort_by_label",
    "sort_by_label_desc",
    "ts_of_last_over_time",
    "ts_of_max_over_time",
    "ts_of_min_over_time",
)
EXPERIMENTAL_AGGREGATIONS = ("limitk", "limit_ratio")
WITH_PARAMETER = ("topk", "bottomk", "quantile", "count_values")
