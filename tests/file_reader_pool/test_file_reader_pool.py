"""A read that hangs keeps its thread and costs itself; nothing is ever read by two threads at once."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.backends.file_reader_pool import MAX_READERS_PER_DEVICE, DeviceReads, FileReaderPool, UnansweredError
from agent.model import Reason
from tests.waiting import wait_until

PATIENCE = 0.15
"""Of the pools here, in seconds: five times what makes another reader take over."""


class Doubtful:
    """An item whose read does what it is told to, and notes how it was called."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.act: Callable[[], object] = lambda: None
        self.reads = 0
        self.inside = 0
        self.most_inside = 0
        self._lock = threading.Lock()

    def read(self) -> str:
        with self._lock:
            self.reads += 1
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            self.act()
        finally:
            with self._lock:
                self.inside -= 1
        return self.path


class Track:
    def __init__(self, devices: int, items: int, **options: Any) -> None:
        self.pool = FileReaderPool("test", **{"timeout": PATIENCE, **options})
        self.items = [[Doubtful(f"{device}/{item}") for item in range(items)] for device in range(devices)]
        self.batches = [DeviceReads(str(device), items) for device, items in enumerate(self.items)]
        self.gate = threading.Event()
        self.mono = 0.0

    def hang(self, *places: tuple[int, int]) -> None:
        for device, item in places:
            self.items[device][item].act = lambda: self.gate.wait(60)

    def round(self) -> list[list[str | UnansweredError]]:
        self.mono += 1.0
        return self.pool.round(self.batches, self.mono)

    def unread(self) -> dict[str, UnansweredError]:
        """What a round did not tell, by path; everything else must have answered for itself."""
        missing = {}
        for items, answers in zip(self.items, self.round(), strict=True):
            for item, answer in zip(items, answers, strict=True):
                if isinstance(answer, UnansweredError):
                    missing[item.path] = answer
                else:
                    assert answer == item.path
        return missing

    def cure(self) -> None:
        """Let everything go that hangs, and wait until it has."""
        self.gate.set()
        for items in self.items:
            for item in items:
                wait_until(lambda item=item: not item.inside)
                wait_until(lambda item=item: not self.pool.is_hanging(item.path.split("/")[0], item.path))

    @property
    def threads(self) -> int:
        return sum(thread.name == "test-reader" for thread in threading.enumerate())


@pytest.fixture
def track() -> Iterator[Callable[..., Track]]:
    made: list[Track] = []

    def make(*size: int, **options: Any) -> Track:
        made.append(Track(*size, **options))
        return made[-1]

    yield make
    for each in made:
        each.cure()
        each.pool.close()
        wait_until(lambda each=each: not each.threads)


def test_while_nothing_hangs_one_thread_reads_everything_in_order(track) -> None:
    well = track(8, 10)
    for _ in range(5):
        assert well.round() == [[item.path for item in items] for items in well.items]
        assert well.threads == 1
    assert well.pool.round([], 9.0) == []
    assert well.pool.round([DeviceReads("a", []), DeviceReads("b", [])], 9.0) == [[], []]


def test_an_item_that_hangs_affects_only_itself_and_is_not_asked_again(track) -> None:
    one = track(3, 4)
    one.hang((1, 2))
    (first,) = one.unread().values()
    assert (first.reason, first.detail) == (Reason.TIMEOUT, f"1/2: no answer for {PATIENCE:.1f} s")
    for second in range(1, 4):
        assert [each.detail for each in one.unread().values()] == [f"1/2: no answer for {second:.1f} s"]
    assert one.items[1][2].reads == 1
    assert one.threads == 2
    one.cure()
    assert one.unread() == {}
    assert one.items[1][2].reads == 2


def test_a_device_keeps_two_readers_and_its_rest_is_not_read(track) -> None:
    sick = track(3, 6)
    sick.hang(*((1, item) for item in range(6)))
    for _ in range(3):
        missing = sick.unread()
        assert set(missing) == {item.path for item in sick.items[1]}
        assert {each.reason for each in missing.values()} == {Reason.TIMEOUT}
        assert missing["1/3"].detail == "1/3: not read because 1/0 does not answer"
    assert [item.reads for item in sick.items[1]] == [1, 1, 0, 0, 0, 0]
    assert sick.threads == MAX_READERS_PER_DEVICE + 1
    sick.cure()
    assert sick.unread() == {}


def test_there_are_never_more_threads_than_allowed_and_the_round_ends(track) -> None:
    dead = track(6, 3, max_readers=5)
    dead.hang(*((device, item) for device in range(6) for item in range(3)))
    for _ in range(4):
        assert len(dead.unread()) == 18
        assert dead.threads <= 5
    assert sum(item.reads for items in dead.items for item in items) == 5
    assert any(": not read: 5 reads hang" in each.detail for each in dead.unread().values())
    dead.cure()
    assert dead.unread() == {}
    wait_until(lambda: dead.threads == 1)


def test_a_device_that_is_slow_is_read_to_its_end(track) -> None:
    """Each item takes longer than another reader waits to take over, and less than the patience."""
    slow = track(3, 3, timeout=3.0)
    never = threading.Event()
    for item in slow.items[1]:
        item.act = lambda: never.wait(0.07)
    assert slow.unread() == {}
    assert max(item.most_inside for item in slow.items[1]) == 1


def test_a_device_that_is_slow_without_end_leaves_the_others_their_time(track) -> None:
    slow = track(2, 60, timeout=0.1)
    never = threading.Event()
    for item in slow.items[0]:
        item.act = lambda: never.wait(0.04)
    missing = slow.unread()
    assert {path.split("/")[0] for path in missing} == {"0"}
    assert "0/0" not in missing
    assert missing["0/59"].detail.startswith(("0/59: not read: 0 took longer than", "0/59: not read because 0/"))


def test_what_an_item_did_not_foresee_affects_only_itself_and_is_reported_once(track, caplog) -> None:
    odd = track(2, 3)

    def stumble() -> None:
        raise ZeroDivisionError("surprise")

    odd.items[0][1].act = stumble
    for _ in range(5):
        (missing,) = odd.unread().values()
        assert (missing.reason, missing.detail) == (Reason.MALFORMED, "0/1: ZeroDivisionError: surprise")
    assert len([record for record in caplog.records if record.exc_info]) == 1


class WordlessError(Exception):
    """What cannot even be told: making its words fails."""

    def __str__(self) -> str:
        raise MemoryError


@pytest.mark.parametrize("error", [MemoryError, WordlessError, SystemExit, GeneratorExit])
@pytest.mark.parametrize("broken_log", [False, True])
def test_whatever_an_item_raises_its_reader_lives_and_the_item_is_read_again(
    track, monkeypatch, error: type[BaseException], broken_log: bool
) -> None:
    odd = track(2, 3)
    before = threading.active_count()

    def stumble() -> None:
        raise error

    def refuse(*args: object, **facts: object) -> None:
        raise MemoryError

    if broken_log:
        monkeypatch.setattr(logging.getLogger("coldplate.backend"), "error", refuse)
    odd.items[0][1].act = stumble
    for _ in range(3):
        missing = odd.unread()
        assert set(missing) == {"0/1"}
        assert missing["0/1"].reason is Reason.MALFORMED
        assert missing["0/1"].detail.startswith(f"0/1: {error.__name__}")
    assert threading.active_count() == before + 1, "one reader serves them all"
    odd.items[0][1].act = lambda: None
    assert odd.unread() == {}


def test_a_hang_is_reported_once_and_its_end_once(track, caplog) -> None:
    one = track(2, 3)
    one.hang((0, 1))
    with caplog.at_level(logging.INFO, "coldplate.backend"):
        for _ in range(4):
            one.round()
        one.cure()
        for _ in range(3):
            one.round()
    told = [(record.levelname, record.facts["path"]) for record in caplog.records]
    assert told == [("WARNING", "0/1"), ("INFO", "0/1")]


def test_an_item_that_hangs_whenever_it_is_read_is_not_reported_each_time(track, caplog) -> None:
    """An adapter's firmware command times out after a minute, and the next one hangs again."""
    again = track(1, 1)
    again.hang((0, 0))
    with caplog.at_level(logging.INFO, "coldplate.backend"):
        for _ in range(3):
            assert set(again.unread()) == {"0/0"}
            again.cure()
            again.gate.clear()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_where_no_thread_can_be_started_the_reason_is_reported_and_it_heals(
    track, monkeypatch, error: Exception
) -> None:
    short = track(2, 2)

    def refuse(thread: threading.Thread) -> None:
        raise error

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        missing = short.unread()
    assert len(missing) == 4
    assert {each.reason for each in missing.values()} == {Reason.DENIED}
    assert "TasksMax" in missing["0/0"].detail
    assert short.unread() == {}


def test_where_no_second_thread_can_be_started_the_first_one_continues_when_it_can(track, monkeypatch) -> None:
    short = track(3, 1)
    short.round()
    short.hang((0, 0))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        missing = short.unread()
    assert missing["0/0"].reason is Reason.TIMEOUT
    assert missing["1/0"].reason is missing["2/0"].reason is Reason.DENIED
    assert set(short.unread()) == {"0/0"}


def test_a_closed_relay_has_no_thread_but_one_that_hangs_and_may_be_used_again(track) -> None:
    one = track(2, 2)
    one.hang((0, 0))
    one.round()
    one.pool.close()
    one.pool.close()
    wait_until(lambda: one.threads == 1)
    one.cure()
    wait_until(lambda: not one.threads)
    assert one.unread() == {}
