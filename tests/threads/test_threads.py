"""A thread that falls, that cannot be started, or that stands still: seen, told once, and begun again."""

import logging
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from agent.lib.threads import AWAY_SECONDS, SETTLED_SECONDS, KeptThread, Threads
from tests.conftest import FakeClock
from tests.waiting import wait_until

WAIT = 10.0


class Worker:
    """Work that raises what it is told to, and else goes on until it is stopped."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.trouble: list[BaseException] = []
        self._more = threading.Event()
        self.stopped = False

    def __call__(self) -> None:
        self.begun.release()
        while not self.stopped:
            if self.trouble:
                raise self.trouble.pop(0)
            self._more.wait(WAIT)
            self._more.clear()

    def fall(self, *errors: BaseException) -> None:
        self.trouble += errors
        self._more.set()

    def stop(self) -> None:
        self.stopped = True
        self._more.set()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


def up(threads: Threads, name: str = "work") -> bool:
    return {state.name: state.up for state in threads.states()}[name]


def restarts(threads: Threads, name: str = "work") -> int:
    return {state.name: state.restarts for state in threads.states()}[name]


@pytest.mark.parametrize("error", [ValueError("odd"), MemoryError(), SystemExit(3), KeyboardInterrupt()])
def test_whatever_ends_a_thread_its_work_begins_again(
    clock: FakeClock, worker: Worker, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    threads = Threads(clock)
    threads.begin("work", worker, vital=True)
    assert worker.begun.acquire(timeout=WAIT)
    worker.fall(error)
    assert worker.begun.acquire(timeout=WAIT), "it was not begun again"
    assert restarts(threads) == 1
    assert not up(threads) and "ended by" in threads.trouble(), "it may fall again at once"
    clock.now += SETTLED_SECONDS + 0.1
    threads.tend()
    assert up(threads) and threads.trouble() == ""
    assert type(error).__name__ in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_fails_while_it_waits_to_begin_again_is_started_again(
    clock: FakeClock, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMemory:
        def wait(self, _seconds: float) -> None:
            raise MemoryError

    threads = Threads(clock)
    kept = threads.begin("work", worker)
    assert worker.begun.acquire(timeout=WAIT)
    with monkeypatch.context() as shortage:
        shortage.setattr(threading, "Event", NoMemory)
        worker.fall(ValueError("first"))
        assert kept.join(WAIT)
    threads.tend()
    assert worker.begun.acquire(timeout=WAIT)
    assert restarts(threads) == 2


def test_a_thread_that_keeps_failing_is_logged_once_and_counted_when_it_is_done_too(
    clock: FakeClock, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    threads = Threads(clock)
    kept = threads.begin("work", worker)
    worker.fall(*(ValueError("the same") for _ in range(3)))
    for _ in range(4):
        assert worker.begun.acquire(timeout=WAIT)
    assert restarts(threads) == 3
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    worker.stop()
    assert kept.join(WAIT)
    threads.tend()
    assert restarts(threads) == 3 and up(threads)


def test_a_thread_that_is_done_holds_nothing_of_its_work_any_more(clock: FakeClock) -> None:
    """Whoever keeps the thread, to ask whether it is done, would keep what it wrote: minutes of a recording, say."""

    class Content:
        """What the work is about."""

    content = Content()
    trace = weakref.ref(content)
    kept = Threads(clock).begin("writer", partial(_take, content))
    assert kept.join(10.0)
    del content
    assert kept.done
    assert trace() is None


def _take(_content: object) -> None:
    """Some work with it."""


def test_a_thread_that_begins_while_another_tends_them_is_started_once(clock: FakeClock, monkeypatch) -> None:
    threads, begun, end = Threads(clock), threading.Semaphore(0), threading.Event()
    start = threading.Thread.start

    def tended(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        threads.tend()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", tended)

    def work() -> None:
        begun.release()
        end.wait(WAIT)

    threads.begin("writer", work)
    threads.tend()
    assert begun.acquire(timeout=WAIT)
    assert not begun.acquire(timeout=0.1), "another thread does the same work"
    end.set()


def test_a_thread_that_the_system_had_no_room_for_is_started_when_there_is(
    clock: FakeClock, worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads(clock)
    with monkeypatch.context() as shortage:
        shortage.setattr(threading.Thread, "start", refuse)
        kept = threads.begin("work", worker, vital=True)
        threads.tend()
        assert not up(threads) and "cannot be started" in threads.trouble()
        assert len(caplog.records) == 1
        assert kept.join(0.0), "nobody waits for what never began"
    threads.tend()
    assert worker.begun.acquire(timeout=WAIT)
    assert up(threads) and threads.trouble() == ""


def test_a_thread_that_fails_at_once_is_in_trouble(clock: FakeClock, worker: Worker, monkeypatch) -> None:
    """It may have fallen before whoever started it goes on."""
    real, risen = threading.Thread.start, threading.Event()

    def start(thread: threading.Thread) -> None:
        real(thread)
        assert risen.wait(WAIT)

    def work() -> None:
        if not worker.begun.acquire(blocking=False):
            worker.begun.release()
            raise ValueError("at once")
        risen.set()
        worker()

    monkeypatch.setattr(threading.Thread, "start", start)
    threads = Threads(clock)
    threads.begin("work", work, vital=True)
    assert "ended by ValueError" in threads.trouble() and not up(threads)


def still(clock: FakeClock, patience: float | None, vital: bool, worker: Worker) -> tuple[Threads, KeptThread]:
    threads = Threads(clock)
    kept = threads.begin("work", worker, stall_timeout=patience, vital=vital)
    assert worker.begun.acquire(timeout=WAIT)
    threads.tend()
    return threads, kept


def pass_time(threads: Threads, clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds)):
        clock.now += 1.0
        threads.tend()


def test_a_thread_that_is_stuck_is_in_trouble_until_it_moves(clock: FakeClock, worker: Worker, caplog) -> None:
    caplog.set_level(logging.INFO)
    threads, kept = still(clock, 10.0, True, worker)
    pass_time(threads, clock, 10)
    assert threads.trouble() == ""
    pass_time(threads, clock, 60)
    assert "thread work has made no progress for" in threads.trouble() and not up(threads)
    kept.beat()
    pass_time(threads, clock, 1)
    assert threads.trouble() == "" and up(threads)
    assert [each.levelno for each in caplog.records] == [logging.ERROR, logging.INFO]


@pytest.mark.parametrize(
    ("patience", "vital", "is_up"),
    [
        pytest.param(None, True, True, id="without a timeout it may wait as long as it likes"),
        pytest.param(5.0, False, False, id="of one that is not vital it is shown"),
    ],
)
def test_trouble_that_is_not_the_process_s(
    clock: FakeClock, worker: Worker, patience: float | None, vital: bool, is_up: bool
) -> None:
    threads, _ = still(clock, patience, vital, worker)
    pass_time(threads, clock, 100)
    assert (threads.trouble(), up(threads)) == ("", is_up)


def test_no_thread_is_stuck_if_the_process_itself_did_not_run(clock: FakeClock, worker: Worker) -> None:
    """Stopped by SIGSTOP or a debugger, frozen with its cgroup: the first look afterwards blames nobody."""
    threads, _ = still(clock, 10.0, True, worker)
    clock.now += 3600.0 + AWAY_SECONDS
    threads.tend()
    assert threads.trouble() == ""
    pass_time(threads, clock, 20)
    assert threads.trouble() != ""


def test_threads_of_one_name_are_up_if_all_are_and_their_restarts_add_up(clock: FakeClock, worker: Worker) -> None:
    well, again = Worker(), Worker()
    threads = Threads(clock)
    first = threads.begin("work", worker)
    worker.fall(ValueError(), ValueError())
    wait_until(lambda: first.restarts == 2)
    threads.begin("work", well)
    assert len(threads.states()) == 1
    assert not up(threads), "the last of them is not all of them"
    worker.stop()
    assert first.join(WAIT)
    threads.tend()  # by now it is done, and counted by its name alone
    third = threads.begin("work", again)
    again.fall(ValueError())
    wait_until(lambda: third.restarts == 1)
    assert restarts(threads) == 3
    for each in (well, again):
        each.stop()
    third.join(WAIT)
    threads.tend()
    assert restarts(threads) == 3
