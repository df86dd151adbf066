"""Counts the processor time of the tests by folder, and prints it at the end of a run beside each folder's budget.

Counted are pytest's processes, the ended processes that they started, and those of tests/warm.py.
In CI a folder that takes twice its budget fails the run: the suite stays one that people run.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Generator
from multiprocessing import forkserver
from pathlib import Path

import pytest

TICK = os.sysconf("SC_CLK_TCK")

BUDGETS: dict[str, float] = {
    "alerts": 20, "backtest": 7, "commands": 26, "daemon": 52, "deployment": 25, "doctor": 16, "engine": 20,
    "exporters": 9, "health": 12, "http_client": 5, "infiniband": 8, "jobs": 5, "lib": 10, "notify": 6, "power": 4,
    "promql": 12, "protection": 6, "rack": 10, "recording": 12, "render": 6, "replay": 4, "report": 12, "rulepack": 60,
    "sampler": 20, "screen": 20, "simulate": 7, "structure": 10, "synthetic": 14, "worker": 16,
}  # fmt: skip
"""Processor seconds of each folder on the machine that CI has."""

UNDER_COVERAGE = 3.0
"""How many times as long the tests take while Python 3.11 and older measure coverage."""

LOOP_SECONDS = 0.065
"""Processor seconds that `slowness` takes on that machine, about: others are slower by a factor of two and more."""

OTHERS = 3.0
"""The budget of a folder without one of its own."""


def slowness() -> float:
    """Return how many times as long as the machine of the budgets this one takes, at least 1."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        sum(map(int.__mul__, range(1_000_000), range(1_000_000)))  # nothing that coverage would trace
        taken.append(time.process_time() - began)
    return max(min(taken) / LOOP_SECONDS, 1.0)


def used() -> float:
    """Return the processor seconds of this process, its ended children, and the processes forked from the warm one."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return total
        total += sum(map(int, fields[11:15])) / TICK  # utime, stime, cutime, cstime of proc(5)
    return total


class CpuBudgets:
    """Adds up what each test took; with xdist, each worker sends the figure along with the test's report."""

    def __init__(self, config: pytest.Config) -> None:
        self._strict = os.environ.get("CI") == "true" and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self._by_folder: Counter[str] = Counter()
        self._times = UNDER_COVERAGE if "coverage" in sys.modules else 1.0
        self._before = used()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = used()
            report.user_properties.append(("cpu", now - self._before))
            self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = report.nodeid.partition("tests/")[2].partition("/")[0]
        if report.when == "teardown":
            self._by_folder[folder] += sum(value for name, value in report.user_properties if name == "cpu")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        ranked = self._by_folder.most_common()
        terminalreporter.section("processor seconds by folder (budget)")
        cells = [f"{folder} {taken:.0f} ({BUDGETS.get(folder, OTHERS):.0f})" for folder, taken in ranked if taken >= 1]
        terminalreporter.write_line(f"{sum(self._by_folder.values()):.0f} in all: " + ", ".join(cells))
        for folder in self._exceeded():
            terminalreporter.write_line(f"{folder} took more than twice its budget of tests/budget.py", red=True)

    def _exceeded(self) -> list[str]:
        times = 2 * self._times * slowness()
        limits = {folder: times * BUDGETS.get(folder, OTHERS) for folder in self._by_folder}
        return [folder for folder, taken in self._by_folder.items() if taken > limits[folder]]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._strict and self._exceeded() and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
