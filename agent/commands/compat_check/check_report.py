"""Verdicts on the queries of files, as a person reads them and as a program does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from agent.commands.compat_check.judged_queries import MetricVerdict, QueryVerdict
from agent.lib.wording import one_line
from exporters.compatibility import PROFILES

_GREEN, _YELLOW, _RED, _PLAIN = "\033[32m", "\033[33m", "\033[1;31m", "\033[0m"
_COLOURS = {"OK": _GREEN, "OPEN": _YELLOW, "NONE": _RED, "UNREAD": _YELLOW}
_LONGEST = 1000


class CheckedFile(NamedTuple):
    """A file, and what became of its queries; `problem` says why none could be read."""

    name: str
    queries: tuple[QueryVerdict, ...] = ()
    problem: str = ""


def profiles_of(files: Sequence[CheckedFile]) -> list[str]:
    """The profiles that the queries need, in the order of the table."""
    sources = {each.source for file in files for query in file.queries for each in query.metrics}
    return [word for word in PROFILES if word in sources]


def word_for(query: QueryVerdict) -> str:
    """Return OK, NONE for a query without data, OPEN if only Grafana knows it, or UNREAD if it was not judged."""
    if query.unread:
        return "UNREAD"
    if not query.found:
        return "NONE"
    return "OPEN" if query.open else "OK"


def lines(files: Sequence[CheckedFile], coloured: bool) -> Iterator[str]:
    """What a person reads."""
    for file in files:
        name = one_line(file.name, _LONGEST)
        if file.problem:
            continue
        words = [word_for(each) for each in file.queries]
        unread = words.count("UNREAD")
        found = len(words) - words.count("NONE") - unread
        yield f"{name}: {found} of {len(words)} queries find data" + (f", {unread} are unread" if unread else "")
        for query, word in zip(file.queries, words, strict=True):
            yield from _query(query, word, coloured)
    needed = profiles_of(files)
    if needed:
        yield f"\nserve the neighbours' names with  metrics: {{compatibility: [{', '.join(needed)}]}}"


def _query(query: QueryVerdict, word: str, coloured: bool) -> Iterator[str]:
    shown = f"{_COLOURS[word]}{word:6}{_PLAIN}" if coloured else f"{word:6}"
    what = query.unread or ", ".join(_metric(each) for each in query.metrics) or "a name that only Grafana knows"
    yield f"  {shown}  {query.place}: {one_line(what, _LONGEST)}"
    for each in query.metrics:
        if each.spare:
            continue
        if not each.source:
            use = f"; use {each.instead}" if each.instead else ""
            yield f"          {one_line(each.name)}: {each.why}{use}"
        elif each.instead:
            yield f"          {one_line(each.name)} is {each.instead}" + (f" ({each.why})" if each.why else "")
        elif each.why:
            yield f"          {one_line(each.name)}: {each.why}"
    yield from (f"          label: {one_line(each, _LONGEST)}" for each in query.remarks)


def _metric(metric: MetricVerdict) -> str:
    return f"{metric.name} ({metric.source or 'nowhere'})"


def document(files: Sequence[CheckedFile]) -> str:
    """The same in JSON."""
    listed = [
        {
            "file": file.name,
            "problem": file.problem,
            "queries": [{**asdict(each), "verdict": word_for(each)} for each in file.queries],
        }
        for file in files
    ]
    return json.dumps({"compatibility": profiles_of(files), "files": listed}, indent=2)
