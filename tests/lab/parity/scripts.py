"""Prometheus's own test scripts, run here.

A script's own expectation is the first judge. Its authors run them with everything that feature flags hide, so where we
answer otherwise a server without flags, which has the same samples, is the second one.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from alerts.promql import PromqlError, Storage
from alerts.promql.labels import match_all
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import VectorSelector, parts_of
from tests.lab.parity.oracles import Recent
from tests.lab.parity.promqltest import Case, cases
from tests.promql import oracle
from tests.promql.answers import Answer, Refusal, ours, same, theirs

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
