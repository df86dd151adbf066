"""Which tests are asked about a mutant, and in which order: those most likely to tell soon come first.

They are those of the folder in tests/ that is named like a folder of the code, then a few quick ones of each file, then
all that run the line, and at last those that may see what a fixture or a child process ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from tests.mutation.names import file_of

if TYPE_CHECKING:  # what these two need is installed by `make mutate` alone
    from tests.mutation.mutants import Mutant
    from tests.mutation.recording import TestMap

FIRST_EACH = 3
"""Tests of each file that are asked before the others: a hundred cases of one table mostly judge alike."""
QUICK_SECONDS = 20.0
"""Seconds of tests that are asked first."""


def stages(mutant: Mutant, known: TestMap, budget: float) -> Iterator[list[str]]:
    """Lists of tests, each to be run in its order, until one of them fails. No more than `budget` seconds in all.

    Those that are asked first get a quarter of it each: the others must have their turn in a small one, too.
    """
    quick = min(QUICK_SECONDS, budget / 4)
    exact, files = _covering(mutant, known)
    asked: set[str] = set()
    places = PurePath(mutant.path).with_suffix("").parts
    own = {test for test in exact if PurePath(file_of(test)).parent.name in places}
    neighbours = {test for test in known.seconds if file_of(test) in files}
    for wanted, most in (
        (own, quick),
        (_few_of_each(exact, known), quick),
        (exact, budget),
        (neighbours, budget),
    ):
        left = budget - sum(known.seconds[test] for test in asked)
        stage = _within(wanted - asked, known, min(most, left))
        asked.update(stage)
        if stage:
            yield grouped(stage, known)


def _covering(mutant: Mutant, known: TestMap) -> tuple[set[str], set[str]]:
    """The tests that run the statement, and files of tests any of which may see what a process or fixture ran."""
    for lines in (mutant.lines, mutant.function, range(1, 10_000)):
        contexts = [context.rpartition("|") for context in known.contexts(mutant.path, lines)]
        exact = {test for test, _, _ in contexts} & known.seconds.keys()
        if exact:
            return exact, {file_of(test) for test, _, phase in contexts if phase in ("setup", "child")}
    return set(), set()


def _few_of_each(tests: Iterable[str], known: TestMap) -> set[str]:
    few: dict[str, list[str]] = {}
    for test in sorted(tests, key=known.seconds.__getitem__):
        few.setdefault(file_of(test), []).append(test)
    return {test for each in few.values() for test in each[:FIRST_EACH]}


def _within(tests: Iterable[str], known: TestMap, seconds: float) -> list[str]:
    chosen = []
    for test in sorted(tests, key=lambda test: (known.seconds[test], test)):
        seconds -= known.seconds[test]
        if seconds < 0:
            break
        chosen.append(test)
    return chosen


def grouped(tests: Iterable[str], known: TestMap) -> list[str]:
    """The tests of a file together, for its fixtures are made once; the file that takes least comes first."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(file_of(test), []).append(test)
    order = sorted(files.values(), key=lambda each: sum(known.seconds[test] for test in each))
    return [test for each in order for test in sorted(each, key=lambda test: (known.seconds[test], test))]
