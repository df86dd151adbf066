"""The queries of Prometheus's own test scripts over their samples, answered here and by Prometheus.

A script is cut into cases. Each has all samples that were loaded up to then, since a `clear`. What the script expects
is not read: the server says it.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from alerts.promql import Labels, Storage
from alerts.promql.syntax.literals import duration_value
from tests.lab.parity.oracles import DIFFERS, Judged, Recent
from tests.lab.parity.queries import Asked
from tests.promql import oracle
from tests.promql.answers import ours, theirs
from tests.rule_tests import notation

_LOAD = re.compile(r"load(?:_with_nhcb)?\s+(\S+)")
_INSTANT = re.compile(r"eval(?:_\w+)?\s+instant\s+at\s+(\S+)\s+(.+)")
_RANGE = re.compile(r"eval(?:_\w+)?\s+range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.+)")
_METRIC = re.compile(r"""[^{}\s]*(?:\{(?:[^}"'`]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)*\})?""")

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Case:
    """A query at an instant, or at each step of a range; `loaded` are the samples so far."""

    script: str
    line: int
    query: str
    instants: tuple[float, ...]
    is_range: bool
    loaded: dict[Labels, Points]


def cases(script: str, text: str) -> Iterator[Case]:
    """The cases of a script. Raises ValueError for a line that is not understood."""
    lines = [("" if line.strip().startswith("#") else line.strip()) for line in text.splitlines()]
    loaded = dict[Labels, Points]()
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
            loaded = {}
        elif found := _LOAD.fullmatch(line):
            loaded = _with(loaded, block, _seconds(found[1]))
        elif line.startswith("eval"):
            yield _case(script, began + 1, line, loaded)
        elif line:
            raise ValueError(f"{script}:{began + 1}: {line!r} is no command that is known")


def _seconds(text: str) -> float:
    return 0.0 if text == "0" else duration_value(text)


def _with(loaded: dict[Labels, Points], block: list[str], step: float) -> dict[Labels, Points]:
    """Return the samples and those of a block, without native histograms, which there are none of here."""
    series = dict(loaded)
    for line in block:
        found = _METRIC.match(line)
        assert found is not None, "the pattern takes the empty text"
        values = line[found.end() :]
        if "{{" not in values:
            labels, samples = notation.metric(found[0]), chain.from_iterable(notation.values(values))
            points = {index * step: value for index, value in enumerate(samples) if value is not None}
            series[labels] = sorted({**dict(series.get(labels, ())), **points}.items())
    return series


def _case(script: str, number: int, line: str, loaded: dict[Labels, Points]) -> Case:
    instant, over = _INSTANT.fullmatch(line), _RANGE.fullmatch(line)
    instants: tuple[float, ...]
    if instant:
        query, instants = instant[2], (_seconds(instant[1]),)
    elif over:
        query = over[4]
        start, end, step = (_seconds(over[each]) for each in (1, 2, 3))
        instants = tuple(start + index * step for index in range(int((end - start) // step) + 1))
    else:
        raise ValueError(f"{script}:{number}: {line!r} is no evaluation that is known")
    return Case(script, number, query, instants, bool(over), loaded)


_OLD_SAMPLES = "storage: {tsdb: {out_of_order_time_window: 1000d}}\n"

OF_RANGES = "out of scope: a range's own @ start() or @ end()"


def judged(recent: Recent, options: argparse.Namespace) -> Judged:
    """Whether both answer the scripts' queries alike, as far as they are about what is offered here."""
    if recent.scripts is None:
        print("scripts: there are none to run; make newest brings them where Debian's source packages can be had")
        return
    found = [case for path in sorted(recent.scripts.glob("*.test")) for case in cases(path.name, path.read_text())]
    print(f"scripts of {recent.scripts.name}")
    for _, alike in groupby(found, key=lambda case: id(case.loaded)):
        yield from _judged(recent, [*alike])


def _judged(recent: Recent, alike: Sequence[Case]) -> Judged:
    """Cases over the same samples."""
    storage = oracle.filled(alike[0].loaded)
    with (
        tempfile.TemporaryDirectory() as folder,
        oracle.running(recent.prometheus, Path(folder), _OLD_SAMPLES) as server,
    ):
        server.write(alike[0].loaded)
        for case in alike:
            if case.is_range and re.search(r"@ *(start|end) *\(", case.query):
                yield OF_RANGES, ""
            else:
                yield _verdict(server, storage, case)


def _verdict(server: oracle.Oracle, storage: Storage, case: Case) -> tuple[str, str]:
    """Return what is to be said of a case; one instant that differs decides."""
    verdict = ""
    for at in case.instants:
        each = Asked(case.query, at, ours(storage, case.query, at), theirs(server.ask(case.query, at)))
        verdict = each.verdict
        if verdict == DIFFERS:
            return verdict, f"{case.script}:{case.line}: {each.words}"
    return verdict, ""
