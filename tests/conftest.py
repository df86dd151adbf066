"""Settings for all tests."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.budget import CpuBudgets
from tests.fakes.trees import OddTree

# A machine that is busy is no reason to fail: nothing in the suite is judged by how long it takes.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

LAB = Path(__file__).with_name("lab")

KEPT = 30
"""Descriptors that a file of tests may leave open: what is made once for all files, and what libraries keep."""

LONG = ("daemon", "rulepack", "engine", "worker", "rack", "commands", "lib", "screen", "host", "infiniband", "report",
        "doctor", "http_client", "health", "power", "simulate", "protection", "notify", "promql", "alerts")  # fmt: skip
"""Folders whose tests start daemons and servers and wait for them."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuBudgets(config), "cpu-budgets")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The lab is collected where it is named: `make test` is about the product."""
    return True if collection_path == LAB and not any("lab" in each for each in config.args) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, for the others to run beside it and not before it."""
    rank = {folder: number for number, folder in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(LONG)))


def pytest_collection_finish() -> None:
    """What was collected stays: no pass of the garbage collector in a test has to look at all of it again."""
    gc.collect()
    gc.freeze()


TRACED = sys.gettrace()
"""What measures coverage in this process, if anything does."""


def pytest_runtest_setup() -> None:
    """Go on measuring: an interpreter that ran out of its stack in a test may have dropped what measures."""
    if TRACED is None:
        return
    if "coverage" in sys.modules:
        _let_go()
    if sys.gettrace() is None:
        sys.settrace(TRACED)


def _let_go() -> None:
    """Release the measurement's lock, if the one who held it did not come to do so: the next would wait for ever."""
    measuring = sys.modules["coverage"].Coverage.current()
    lock = getattr(getattr(measuring, "_collector", None), "data_lock", None)
    if lock is not None:
        lock.acquire(timeout=1.0)
        lock.release()


def pytest_sessionfinish() -> None:
    """Save what was measured while there is time: a worker that takes long to end is killed."""
    if TRACED is not None and "coverage" in sys.modules:
        measuring = sys.modules["coverage"].Coverage.current()
        if measuring is not None:
            _let_go()
            measuring.save()


@pytest.fixture(scope="module", autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each file of tests closes what it opens: where few descriptors may be open, another would fail for it."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    if len(os.listdir("/proc/self/fd")) > before + KEPT:
        gc.collect()
    left = len(os.listdir("/proc/self/fd")) - before
    assert left <= KEPT, f"{request.node.nodeid} leaves {left} descriptors open"


@pytest.fixture(autouse=True)
def logged() -> Iterator[None]:
    """A command that is run in this process sends the log elsewhere, and shows less of it: not to the next test."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    if (root.level, root.handlers) != (level, handlers):
        root.setLevel(level)
        root.handlers[:] = handlers


@pytest.fixture
def long_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of recordings have their full length from the beginning on: a test that cuts one knows where they end."""
    from agent.recording import recording_file

    monkeypatch.setattr(recording_file, "EARLY_SHARE", 1e9)


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def odd() -> Iterator[OddTree]:
    """Spoils files of a tree; those that hang are let go when the test is over."""
    made = OddTree(0)
    yield made
    made.release()
