"""The notation of series in unit tests."""

from __future__ import annotations

import math

import pytest

from alerts.promql import is_stale
from alerts.unittests import notation

READ = {
    "1 2.5 -3": [1, 2.5, -3],
    "1x3": [1, 1, 1, 1],
    "1x0": [1],
    "1+2x3": [1, 3, 5, 7],
    "10-5x2 +7": [10, 5, 0, 7],
    "-1-1x1": [-1, -2],
    "_ 1 _x2 2": [None, 1, None, None, 2],
    "_x0 3": [3],
    ".5x1 1.e3x1 1e2+1e1x1": [0.5, 0.5, 1000, 1000, 100, 110],
    "0x2": [0, 0, 0],
    "inf -Inf +INF": [math.inf, -math.inf, math.inf],
    "1\n\t2": [1, 2],
    "": [],
}


@pytest.mark.parametrize("text", READ)
def test_values_are_expanded(text: str) -> None:
    assert list(notation.values(text)) == READ[text]


def test_steps_add_up_with_their_rounding() -> None:
    assert list(notation.values("0+0.1x3"))[3] == 0.1 + 0.1 + 0.1 != 0.3


def test_stale_is_the_marker_and_nan_is_a_value() -> None:
    stale, nan = notation.values("stale NaN")
    assert stale is not None
    assert nan is not None
    assert is_stale(stale)
    assert math.isnan(nan)
    assert not is_stale(nan)


@pytest.mark.parametrize(
    "text", ["NaNx2", "stalex2", "1 x5", "1+1", "1--1x2", "1_000", "5m", "1x2x3", "1,2", "1x-1", "x"]
)
def test_what_promtool_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is invalid|is not a value"):
        notation.values(text)


def test_native_histograms_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="native histograms are not supported"):
        notation.values("{{schema:1}}")


def test_samples_are_made_as_they_are_read() -> None:
    for text in ("1x99999999999", "0+1x99999999999", "_x99999999999 stale"):
        assert notation.values(text).count > 99_999_999_999
    with pytest.raises(ValueError, match="makes too many samples"):
        notation.values("1x" + "9" * 19)


METRICS = {
    "m": (("__name__", "m"),),
    'm{b="2",a="1"}': (("__name__", "m"), ("a", "1"), ("b", "2")),
    'm{a="1",}': (("__name__", "m"), ("a", "1")),
    '{__name__="m"}': (("__name__", "m"),),
    '{a="}"}': (("a", "}"),),
    r'm{a="x\"y\\\n"}': (("__name__", "m"), ("a", 'x"y\\\n')),
    "m{a='it\\'s \"q\"', b=`\\raw`}": (("__name__", "m"), ("a", 'it\'s "q"'), ("b", "\\raw")),
    'm{a=""}': (("__name__", "m"),),
    "job:m:sum{}": (("__name__", "job:m:sum"),),
}


@pytest.mark.parametrize("text", METRICS)
def test_a_series_is_read(text: str) -> None:
    assert notation.series(text) == METRICS[text]


@pytest.mark.parametrize(
    "text", ["", "1m", 'm{a=~"b"}', "m{a}", 'm{a="b" c="d"}', 'm{a="b"', 'm {a="b"}', 'm{__name__="x"}']
)
def test_what_is_not_a_series_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a series|is not a label|set twice"):
        notation.series(text)
