"""Reads the test scripts of Prometheus: samples to load, queries, and what they are expected to give.

A script is cut into cases. Each has all samples that were loaded up to then, since a `clear`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from alerts.promql import STALE, Labels, make_labels
from alerts.promql.syntax import parse
from alerts.promql.syntax.literals import duration_value
from alerts.promql.syntax.tree import VectorSelector

_LOAD = re.compile(r"load(?:_(with_nhcb))?\s+(\S+)")
_INSTANT = re.compile(r"eval(?:_(fail|warn|ordered|info))?\s+instant\s+at\s+(\S+)\s+(.+)")
_RANGE = re.compile(r"eval(?:_(fail|warn|info))?\s+range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.+)")
_METRIC = re.compile(r"""[^{}\s]*(?:\{(?:[^}"'`]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)*\})?""")
_VALUE = re.compile(r"(?P<start>[^x_]+?)(?:(?P<step>(?<![eE])[+-][^x]+)?x(?P<times>\d+))?")

Points = list[tuple[float, float]]


@dataclass
class Loaded:
    """The samples so far, and the series that hold native histograms, which have none here."""

    series: dict[Labels, Points] = field(default_factory=dict)
    histograms: set[Labels] = field(default_factory=set)


@dataclass(frozen=True)
class Case:
    """A query at an instant, or at each step of a range; `expected` has the values of each series, step by step."""

    script: str
    line: int
    query: str
    instants: tuple[float, ...]
    is_range: bool
    fails: bool
    ordered: bool
    expected: tuple[tuple[Labels, tuple[float | None, ...]], ...]
    scalar: float | None
    histograms: bool
    loaded: Loaded


def cases(script: str, text: str) -> Iterator[Case]:
    """The cases of a script. Raises ValueError for a line that is not understood."""
    lines = [("" if line.strip().startswith("#") else line.strip()) for line in text.splitlines()]
    loaded = Loaded()
    number = 0
    while number < len(lines):
        line, began = lines[number], number
        number += 1
        block: list[str] = []
        if line.startswith(("load", "eval")):
            while number < len(lines) and lines[number]:
                block.append(lines[number])
                number += 1
        if line == "clear":
            loaded = Loaded()
        elif found := _LOAD.fullmatch(line):
            loaded = _with(loaded, block, _seconds(found[2]), nhcb=bool(found[1]))
        elif line.startswith("eval"):
            yield _case(script, began + 1, line, block, loaded)
        elif line:
            raise ValueError(f"{script}:{began + 1}: {line!r} is no command that is known")


def _seconds(text: str) -> float:
    return 0.0 if text == "0" else duration_value(text)


def _with(loaded: Loaded, block: list[str], step: float, *, nhcb: bool) -> Loaded:
    series, histograms = dict(loaded.series), set(loaded.histograms)
    for line in block:
        labels, values = _series(line)
        if values is None:
            histograms.add(labels)
            continue
        points = [(index * step, value) for index, value in enumerate(values) if value is not None]
        series[labels] = sorted({**dict(series.get(labels, ())), **dict(points)}.items())
        name = dict(labels)["__name__"]
        if nhcb and name.endswith("_bucket"):
            others = {key: value for key, value in labels if key not in ("__name__", "le")}
            histograms.add(make_labels(others, name.removesuffix("_bucket")))
    return Loaded(series, histograms)


def _series(line: str) -> tuple[Labels, list[float | None] | None]:
    """Labels and values; no values for a native histogram."""
    found = _METRIC.match(line)
    assert found is not None, "the pattern takes the empty text"
    rest = line[found.end() :].strip()
    return _labels(found[0]), None if "{{" in rest else [each for item in rest.split() for each in _values(item)]


def _labels(text: str) -> Labels:
    if text in ("", "{}"):
        return ()
    selector = parse(text)
    assert isinstance(selector, VectorSelector), text
    return make_labels({matcher.name: matcher.value for matcher in selector.matchers})


def _values(item: str) -> Iterator[float | None]:
    if item.startswith("_"):
        yield from [None] * int(item[2:] or 1)
        return
    found = _VALUE.fullmatch(item)
    if found is None:
        raise ValueError(f"{item!r} is no value")
    value = STALE if found["start"] == "stale" else float(found["start"])
    step = float(found["step"]) if found["step"] else 0.0
    for _ in range(int(found["times"] or 0) + 1):
        yield value
        value = value + step if found["step"] else value


def _case(script: str, number: int, line: str, block: list[str], loaded: Loaded) -> Case:
    instant, over = _INSTANT.fullmatch(line), _RANGE.fullmatch(line)
    instants: tuple[float, ...]
    if instant:
        kind, query, instants = instant[1], instant[3], (_seconds(instant[2]),)
    elif over:
        kind, query = over[1], over[5]
        start, end, step = (_seconds(over[each]) for each in (2, 3, 4))
        instants = tuple(start + index * step for index in range(int((end - start) // step) + 1))
    else:
        raise ValueError(f"{script}:{number}: {line!r} is no evaluation that is known")
    fails = kind == "fail" or any(re.match(r"expect\s+fail", each) for each in block)
    ordered = kind == "ordered" or any(re.match(r"expect\s+ordered", each) for each in block)
    scalar: float | None = None
    expected = []
    histograms = any("{{" in each for each in block)
    for each in block:
        if re.match(r"expect\b|expected_fail", each) or histograms or fails:
            continue
        try:
            scalar = float(each)
        except ValueError:
            labels, values = _series(each)
            expected.append((labels, tuple(values or ())))
    return Case(
        script, number, query, instants, bool(over), fails, ordered, tuple(expected), scalar, histograms, loaded
    )
