"""What a query evaluates to: an instant vector, a scalar or a string."""

from __future__ import annotations

from typing import NamedTuple, Union

from alerts.promql.labels import Labels


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Labels
    at: float
    value: float


class Scalar(NamedTuple):
    """A number without labels."""

    value: float


class String(NamedTuple):
    """A text; only a string literal evaluates to one."""

    value: str


Vector = list[Sample]
Value = Union[Vector, Scalar, String]
