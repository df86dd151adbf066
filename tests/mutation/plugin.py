"""What pytest needs to know in the copy: whose lines are being recorded, and which tests are to run, in which order.

It is named to pytest with `-p`, and does nothing unless one of these variables is set:

MUTATION_LEDGER          a file to which each test's outcome and seconds are written, as lines of JSON
MUTATION_CHOSEN          a file with the tests to run, one a line, in their order
COVERAGE_PROCESS_START   coverage's own: each process measures what it runs, and is told here for which test
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

CHILD_CONTEXT = "MUTATION_CHILD"
"""The context of child processes that are measured: the test that started them."""


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    yield
    chosen = os.environ.get("MUTATION_CHOSEN")
    if chosen is not None:
        rank = {name: number for number, name in enumerate(Path(chosen).read_text(encoding="utf-8").splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])


def pytest_configure(config: pytest.Config) -> None:
    if "COVERAGE_PROCESS_START" in os.environ:
        config.pluginmanager.register(Contexts())
    if "MUTATION_LEDGER" in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(Path(os.environ["MUTATION_LEDGER"])))


class Contexts:
    """Tells coverage, and the processes that are started, which test is running."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        enter(item, "setup")
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        enter(item, "call")
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        enter(item, "teardown")
        yield

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        from coverage import Coverage

        measured = Coverage.current()
        if measured is not None:
            measured.stop()
            measured.save()


def enter(item: pytest.Item, phase: str) -> None:
    from coverage import Coverage

    os.environ[CHILD_CONTEXT] = f"{item.nodeid}|child"
    measured = Coverage.current()
    if measured is not None:
        measured.switch_context(f"{item.nodeid}|{phase}")


class Ledger:
    """Writes down how each test ended, and how long it took with its fixtures."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._seconds: dict[str, float] = {}
        self._outcome: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.outcome != "passed":
            self._outcome[name] = report.outcome
        if report.when == "teardown":
            row = [name, self._outcome.get(name, "passed"), round(self._seconds[name], 3)]
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
