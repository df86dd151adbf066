"""One backend in its thread: what is read when, how each read ended, and what is said of it."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.backends.protocol import AbsentError, BackendSample, DeviceError
from agent.lib.threads import Threads
from agent.model import LANES, Instant, Lane, Outcome, Reason
from agent.sampler.backend_runner import CALM_SECONDS, Flight, Read, Runner


class Told:
    name = "told"

    def __init__(self, lanes: frozenset[Lane] = frozenset(LANES), shortest: float = 0.0) -> None:
        self.lanes = lanes
        self.shortest = shortest
        self.act: Callable[[], None] = lambda: None
        self.asked: list[tuple[Lane, float]] = []
        self.closed = self.left_out = 0

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        self.asked.append((lane, now.mono))
        self.act()
        return BackendSample(calls=3, left_out=self.left_out)

    def close(self) -> None:
        self.closed += 1


class Stage:
    def __init__(self, backend: Told) -> None:
        self.backend = backend
        self.mono = 0.0
        self.gate = threading.Event()
        self._done = threading.Event()
        self.threads = Threads()
        self.runner = Runner(backend, lambda: Instant(self.mono, 0.0), self._done.set, self.threads)

    def read(self, *lanes: Lane, at: float | None = None) -> list[Read]:
        """Ask, wait until the runner is free, and take what it has."""
        self.mono = self.mono if at is None else at
        self._done.clear()
        if self.runner.ask(lanes, self.mono):
            assert self._done.wait(10)
        return self.runner.collect_reads()

    def hang(self) -> threading.Event:
        """The next read does not return until `gate`; the event says that it has begun."""
        begun = threading.Event()

        def act() -> None:
            begun.set()
            self.gate.wait(60)

        self.backend.act = act
        return begun

    def wait(self) -> None:
        assert self._done.wait(10)


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(Told(**options)))
        return made[-1]

    yield make
    for each in made:
        each.gate.set()
        each.runner.stop(10)


def fail(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_lanes_are_read_in_their_order_and_only_those_that_the_backend_has(stage) -> None:
    one = stage(lanes=frozenset({Lane.FAST, Lane.COLD}))
    reads = one.read(Lane.COLD, Lane.SLOW, Lane.FAST)
    assert [read.lane for read in reads] == [Lane.FAST, Lane.COLD]
    assert {(read.backend, read.outcome, read.sample.calls) for read in reads} == {("told", Outcome.OK, 3)}
    assert not one.read(Lane.SLOW)


def test_a_read_takes_as_long_as_the_clock_says(stage) -> None:
    one = stage()

    def act() -> None:
        one.mono += 2.5

    one.backend.act = act
    (read,) = one.read(Lane.FAST, at=10.0)
    assert (read.mono, read.duration) == (10.0, 2.5)
    assert not read.frame.readings
    one.backend.left_out = 7
    ((series, value),) = one.read(Lane.SLOW)[0].frame.readings
    assert (repr(series), value) == ('coldplate_backend_series_dropped{backend="told"}', 7)


def test_a_backend_is_not_read_more_often_than_it_has_news(stage) -> None:
    one = stage(shortest=1.0)
    for tenth in range(31):
        one.read(Lane.FAST, at=tenth / 10)
    assert [at for _, at in one.backend.asked] == [0.0, 1.0, 2.0, 3.0]


def test_lanes_that_fall_due_during_a_read_are_read_once(stage) -> None:
    one = stage()
    assert one.runner.flight is None
    begun = one.hang()
    one.mono = 5.0
    assert one.runner.ask((Lane.FAST, Lane.SLOW), 5.0)
    assert begun.wait(10)
    assert one.runner.flight == Flight(Lane.FAST, 5.0)
    assert one.runner.busy
    for second in range(6, 40):
        assert not one.runner.ask(LANES if second % 15 == 0 else (Lane.FAST,), float(second))
    seen: list[Flight | None] = []
    one.backend.act = lambda: seen.append(one.runner.flight)
    one.mono = 40.0
    one.gate.set()
    one.wait()
    assert seen == [Flight(Lane.SLOW, 40.0)]
    assert one.runner.flight is None
    assert [read.mono for read in one.runner.collect_reads()] == [5.0, 40.0]
    one.read(Lane.FAST, at=41.0)
    assert one.backend.asked[2:] == [(Lane.FAST, 41.0), (Lane.SLOW, 41.0), (Lane.COLD, 41.0)]


def test_absent_hardware_is_no_failure_and_is_tried_in_the_cold_lane_alone(stage, caplog) -> None:
    one = stage()
    one.backend.act = fail(AbsentError("no such directory"))
    (read,) = one.read(Lane.FAST)
    assert (read.outcome, read.detail) == (Outcome.ABSENT, "no such directory")
    for second in range(1, 60):
        assert one.read(Lane.FAST, *([Lane.SLOW] if second % 15 == 0 else []), at=float(second)) == []
    assert {read.outcome for read in one.read(*LANES, at=60.0)} == {Outcome.ABSENT}
    assert not caplog.records
    one.backend.act = lambda: None
    assert one.read(Lane.FAST, at=61.0) == []
    assert {read.outcome for read in one.read(*LANES, at=120.0)} == {Outcome.OK}
    assert len(one.read(Lane.FAST, at=121.0)) == 1, "and is read as usual from then on"


def test_a_failure_has_its_reason_and_the_next_read_may_be_well(stage) -> None:
    one = stage()
    one.backend.act = fail(DeviceError(Reason.DENIED, "not for you"))
    (read,) = one.read(Lane.FAST)
    assert (read.outcome, read.reason, read.detail) == (Outcome.FAILED, Reason.DENIED, "not for you")
    one.backend.act = fail(ZeroDivisionError("surprise"))
    (read,) = one.read(Lane.FAST, at=1.0)
    assert (read.outcome, read.reason, read.detail) == (Outcome.FAILED, Reason.MALFORMED, "ZeroDivisionError: surprise")
    one.backend.act = lambda: None
    (read,) = one.read(Lane.FAST, at=2.0)
    assert (read.outcome, read.detail) == (Outcome.OK, "")


@pytest.mark.parametrize(
    ("last", "among", "told"),
    [
        pytest.param(100, 1, ["ERROR", "INFO"], id="each read fails until all is well"),
        pytest.param(600, 15, ["ERROR"], id="one in fifteen fails"),
    ],
)
def test_a_failure_is_reported_once_whatever_its_words_and_once_when_it_is_over(
    stage, caplog, last: int, among: int, told: list[str]
) -> None:
    one = stage()
    assert CALM_SECONDS > 15
    with caplog.at_level(logging.INFO, "coldplate.backend"):
        for second in range(last + 200 if among == 1 else last):
            fails = second < last and second % among == 0
            one.backend.act = fail(OSError(5, f"the {second}th time")) if fails else lambda: None
            one.read(Lane.FAST, at=float(second))
    assert [record.levelname for record in caplog.records] == told
    assert caplog.records[0].exc_info is not None


def test_another_kind_of_failure_is_reported_and_foreseen_ones_without_a_trace(stage, caplog) -> None:
    one = stage()
    for second in range(10):
        one.backend.act = fail(DeviceError(Reason.LOST, "gone"))
        one.read(Lane.FAST, at=float(2 * second))
        one.backend.act = fail(KeyError("x"))
        one.read(Lane.FAST, at=float(2 * second + 1))
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
    assert "gone" in caplog.records[0].message


def test_a_stopped_runner_closes_its_backend_and_waits_for_no_hang(stage) -> None:
    well = stage()
    well.runner.stop(10)
    assert well.backend.closed == 1
    hung = stage()
    begun = hung.hang()
    hung.runner.ask((Lane.FAST,), 0.0)
    assert begun.wait(10)
    hung.runner.stop(0.01)
    assert hung.backend.closed == 0
    assert hung.runner.busy


def test_a_thread_that_fails_in_a_read_loses_that_read_and_takes_the_next_order(stage, caplog) -> None:
    class End(BaseException):
        """Nothing that a careful `except Exception` would catch."""

    def fall() -> None:
        raise End

    node = stage()
    node.backend.act = fall
    assert node.read(Lane.FAST, at=1.0) == []
    node.backend.act = lambda: None
    assert [read.outcome for read in node.read(Lane.FAST, at=2.0)] == [Outcome.OK]
    assert node.threads.states()[0].restarts == 1
