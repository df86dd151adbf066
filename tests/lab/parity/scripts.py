"""Reads the test scripts of Prometheus: samples to load, queries, and what they are expected to give.

A script is cut into cases. Each has all samples that were loaded up to then, since a `clear`.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from alerts.promql import STALE, Labels, PromqlError, Storage, make_labels
from alerts.promql.labels import match_all
from alerts.promql.syntax import parse
from alerts.promql.syntax.literals import duration_value
from alerts.promql.syntax.tree import VectorSelector, parts_of
from tests.lab.parity.oracles import Recent
from tests.promql import oracle
from tests.promql.answers import Answer, Refusal, ours, same, theirs

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


_PRECISION = 1e-6
_OLD_SAMPLES = "storage: {tsdb: {out_of_order_time_window: 1000d}}\n"

AGREES = "agree"
NATIVE = "out of scope: native histograms"
FLAGGED = "agree with a server without feature flags, which the script's expectation needs"
EXPERIMENTAL = "refused, as by a server without feature flags"
OF_RANGES = "out of scope: a range's own @ start() or @ end()"
DIFFERS = "DIFFER"
REFUSED = "REFUSED here alone"


def compare(recent: Recent, options: argparse.Namespace) -> bool:
    """Whether what the scripts expect is what we answer, as far as they are about what is offered here."""
    if recent.scripts is None:
        print("scripts: there are none to run; make newest brings them where Debian's source packages can be had")
        return True
    found = [case for path in sorted(recent.scripts.glob("*.test")) for case in cases(path.name, path.read_text())]
    counts: Counter[str] = Counter()
    for _, alike in groupby(found, key=lambda case: id(case.loaded)):
        for case, verdict, told in _judged(recent, [*alike]):
            counts[verdict] += 1
            if verdict in (DIFFERS, REFUSED) and counts[DIFFERS] + counts[REFUSED] <= options.show:
                print(f"{case.script}:{case.line}: {verdict}: {case.query}\n{told}")
    print(f"scripts: {len(found)} cases of {recent.scripts.name}")
    for verdict, count in counts.most_common():
        print(f"{count:7} {verdict}")
    return not counts[DIFFERS] + counts[REFUSED]


def _judged(recent: Recent, alike: Sequence[Case]) -> Iterator[tuple[Case, str, str]]:
    """Cases over the same samples, each with its verdict and with what is to be told of it."""
    storage = Storage()
    for labels, points in alike[0].loaded.series.items():
        for at, value in points:
            storage.append(labels, at, value)
    open_ones = []
    for case in alike:
        if case.is_range and re.search(r"@ *(start|end) *\(", case.query):
            yield case, OF_RANGES, ""
        elif not case.histograms and _as_expected(case, [ours(storage, case.query, at) for at in case.instants]):
            yield case, AGREES, ""
        elif case.histograms or _reads_histograms(case):
            yield case, NATIVE, ""
        else:
            open_ones.append(case)
    if open_ones:
        with (
            tempfile.TemporaryDirectory() as folder,
            oracle.running(recent.prometheus, Path(folder), _OLD_SAMPLES) as server,
        ):
            server.write(alike[0].loaded.series)
            for case in open_ones:
                yield case, *_second_judge(server, storage, case)


def _second_judge(server: oracle.Oracle, storage: Storage, case: Case) -> tuple[str, str]:
    verdict = FLAGGED
    for at in case.instants:
        own, other = ours(storage, case.query, at), theirs(server.ask(case.query, at))
        told = f"    at {at}\n    ours     {own}\n    theirs   {other}\n    expected {case.expected or case.scalar}"
        if isinstance(own, Refusal) and isinstance(other, Refusal):
            verdict = EXPERIMENTAL
        elif not same(own, other, relative=_PRECISION):
            return REFUSED if isinstance(own, Refusal) and own.at_load else DIFFERS, told
    return verdict, ""


def _as_expected(case: Case, answers: Sequence[Answer]) -> bool:
    if case.fails:
        return all(isinstance(answer, Refusal) and not answer.at_load for answer in answers)
    for step, answer in enumerate(answers):
        if isinstance(answer, float):
            wanted: Answer = case.scalar
        else:
            wanted = [
                (dict(labels), values[step])
                for labels, values in case.expected
                if step < len(values) and values[step] is not None
            ]
        if not same(answer, wanted, relative=_PRECISION, ordered=case.ordered):
            return False
    return True


def _reads_histograms(case: Case) -> bool:
    """Whether a query is about native histograms, whose samples were left out."""
    held = case.loaded.histograms
    if not held:
        return False
    try:
        selectors = [part for part in parts_of(parse(case.query)) if isinstance(part, VectorSelector)]
    except PromqlError:
        return any(re.search(rf"\b{re.escape(dict(labels)['__name__'])}\b", case.query) for labels in held)
    return any(match_all(selector.matchers, labels) for selector in selectors for labels in held)
