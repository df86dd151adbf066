"""Arithmetic with numbers that have no ordinary result: as C99's annex F has it, and with it Go and Prometheus."""

from __future__ import annotations

import pytest

from alerts.promql import Scalar, Storage, compile_query

RESULTS = [
    ("7 % 3", "1"), ("-7 % 3", "-1"), ("7 % -3", "1"), ("5.5 % 2", "1.5"), ("7 % 0", "NaN"), ("Inf % 3", "NaN"),
    ("7 % Inf", "7"), ("NaN % 3", "NaN"),
    ("7 / 2", "3.5"), ("1 / 0", "+Inf"), ("-1 / 0", "-Inf"), ("1 / -0", "-Inf"), ("-1 / -0", "+Inf"), ("0 / 0", "NaN"),
    ("NaN / 0", "NaN"), ("Inf / 0", "+Inf"), ("1 / Inf", "0"), ("Inf / Inf", "NaN"),
    ("2 ^ 10", "1024"), ("-2 ^ 2", "-4"), ("(-2) ^ 3", "-8"), ("2 ^ -1", "0.5"), ("10 ^ 400", "+Inf"),
    ("(-10) ^ 401", "-Inf"), ("(-10) ^ 400", "+Inf"), ("(-10) ^ 401.5", "NaN"), ("0 ^ -1", "+Inf"),
    ("(-0) ^ -1", "-Inf"), ("(-0) ^ -3", "-Inf"), ("(-0) ^ -2", "+Inf"), ("0 ^ 0", "1"), ("NaN ^ 0", "1"),
    ("1 ^ NaN", "1"), ("(-8) ^ 0.5", "NaN"), ("5 - 7", "-2"), ("5 * -3", "-15"), ("Inf - Inf", "NaN"),
    ("0 * Inf", "NaN"), ("5 >= bool 5", "1"), ("5 > bool 5", "0"), ("5 <= bool 5", "1"), ("5 < bool 5", "0"),
    ("5 == bool 5", "1"), ("5 != bool 5", "0"), ("NaN == bool NaN", "0"), ("NaN != bool NaN", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "result"), RESULTS)
def test_of_numbers(text: str, result: str) -> None:
    found = compile_query(text).evaluate(Storage(), 0.0)
    assert isinstance(found, Scalar)
    assert repr(found.value) == repr(float(result))
