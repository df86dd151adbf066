"""The notation of series in unit tests: `m{gpu="0"}` and `1+2x3 _x2 stale`.

The parser of queries reads a series. The values follow promtool's grammar: `axn` gives n + 1 samples, `_xn` gives n
gaps, `a+bxn` adds step by step (so its rounding errors add up too), and `NaNx3` is rejected, because promtool reads one
word there. Native histograms (`{{...}}`) are rejected.
"""

import math
import re
from collections.abc import Iterator
from itertools import accumulate, repeat

from msgspec import Struct

from agent.lib.wording import one_line, shown
from alerts.promql.labels import Labels, PromqlError
from alerts.promql.storage import STALE
from alerts.promql.syntax import parse_metric

NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WORDS = {"nan": math.nan, "inf": math.inf}
_ITEM = re.compile(
    rf"""(?P<blank>_)(?:x(?P<gaps>[0-9]+))?
       | (?P<start>[+-]?(?:{NUMBER}|[A-Za-z][A-Za-z0-9_:]*))
         (?:(?P<step>[+-](?:{NUMBER}|[A-Za-z][A-Za-z0-9_:]*))?x(?P<times>[0-9]+))?""",
    re.VERBOSE,
)
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_EXAMPLE = """'up{job="a"}'"""
_DIGITS = 18  # a number with more digits is a typing error


class SampleRun(Struct, frozen=True):
    """`count` samples in a row: a value, plus an increment each time if there is one; None is a gap."""

    value: float | None
    increment: float | None
    count: int

    def __iter__(self) -> Iterator[float | None]:
        if self.value is None or self.increment is None:
            return repeat(self.value, self.count)
        return accumulate(repeat(self.increment, self.count - 1), initial=self.value)


Samples = tuple[SampleRun, ...]
"""The samples of a series, one for each interval. They are made as they are read, however many there are."""


def series(text: str) -> Labels:
    """Return the labels of an input series: as a metric, but with something in it, and no space before the brace."""
    labels = metric(text)
    if not labels or re.match(rf"\s*{_NAME}\s+\{{", text):
        raise ValueError(f"series: {shown(text)} is not a series; write a name with labels, such as {_EXAMPLE}")
    return labels


def metric(text: str) -> Labels:
    """Return the labels of a metric, its name among them; none of an empty text. Raises ValueError with the remedy."""
    try:
        return parse_metric(text)
    except PromqlError as error:
        remedy = f"write a name with labels, such as {_EXAMPLE}"
        raise ValueError(f"{shown(text)} is not a series: {one_line(error.problem, 200)}; {remedy}") from None


def values(text: str) -> Samples:
    """Return the samples of a series. Raises ValueError with the remedy."""
    return tuple(map(_run, text.split()))


def _run(item: str) -> SampleRun:
    match = _ITEM.fullmatch(item)
    if match is None:
        hint = (
            "native histograms are not supported" if item.startswith("{{") else "write values such as 1 2+3x4 _x5 stale"
        )
        raise ValueError(f"{shown(item)} is invalid; {hint}")
    digits = (match["gaps"] or match["times"] or "0").lstrip("0") or "0"
    if len(digits) > _DIGITS:
        raise ValueError(f"{shown(item)} makes too many samples; write a number of at most {_DIGITS} digits")
    if match["blank"]:
        return SampleRun(None, None, int(digits) if match["gaps"] else 1)
    value = _number(match["start"], item)
    increment = _number(match["step"], item) if match["step"] else None
    return SampleRun(value, increment, int(digits) + 1 if match["times"] else 1)


def _number(text: str, item: str) -> float:
    word = text.lstrip("+-")
    if not word[0].isalpha():
        return float(text)
    if text == "stale":
        return STALE
    if word.lower() in _WORDS:
        return -_WORDS[word.lower()] if text.startswith("-") else _WORDS[word.lower()]
    raise ValueError(f"{shown(item)}: {shown(word)} is not a value; write a number, NaN, Inf, -Inf, stale or _")
