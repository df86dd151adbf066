"""What waits for a receiver: in memory while it answers, on the disk when it does not; and how often it is asked."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from exporters.push import push_queue
from exporters.push.disk_buffer import HEAD_BYTES, DiskBuffer
from exporters.push.push_queue import DAMAGED, EXPIRED, OVERFLOW, PushFigures, PushPace, PushQueue
from exporters.push.remote_write import wished
from exporters.push.write_request import WriteRequest

NOW = 1000.0


def request(number: int, size: int = 1000) -> WriteRequest:
    return WriteRequest(NOW + number, 10, bytes((number,)) * size)


class Made:
    """A queue with a disk that may fail."""

    def __init__(self, folder: Path | None, age: float = 7200.0) -> None:
        self.folder = folder
        self.figures = PushFigures("central")
        self.broken = False
        self.queue = PushQueue(None if folder is None else self._open, age, self.figures)

    def _open(self) -> DiskBuffer:
        assert self.folder is not None
        if self.broken:
            raise OSError(errno.EROFS, "Read-only file system", str(self.folder))
        return DiskBuffer(self.folder, 2.0**20)

    def files(self) -> int:
        return len(list(self.folder.glob("*.segment"))) if self.folder is not None else 0

    def drained(self) -> list[int]:
        found = []
        while (head := self.queue.head(NOW)) is not None:
            found.append(head.body[0])
            self.queue.done(head)
        return found


def test_nothing_is_written_while_the_receiver_answers(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for number in range(5):
        made.queue.put([request(number)], NOW)
        assert made.drained() == [number]
    assert made.files() == 0
    assert (made.figures.pending, made.figures.oldest) == (0, None)


def test_what_was_not_sent_before_the_next_comes_goes_to_the_disk_and_stays_in_order(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.queue.put([request(0)], NOW)
    assert made.files() == 0
    made.queue.put([request(1)], NOW)
    assert made.files() == 1
    assert made.figures.pending == 2 * (1000 + HEAD_BYTES)
    assert made.figures.oldest == NOW
    after_a_crash = Made(tmp_path)
    after_a_crash.queue.open(NOW)
    assert after_a_crash.figures.oldest == NOW
    after_a_crash.queue.put([request(2)], NOW)
    assert after_a_crash.drained() == [0, 1, 2]


def test_a_request_that_was_written_down_while_it_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.queue.put([request(0)], NOW)
    in_hand = made.queue.head(NOW)
    made.queue.put([request(1)], NOW)
    assert in_hand is not None
    made.queue.done(in_hand)
    assert made.drained() == [1]


def test_at_the_end_what_is_left_is_written_down_or_counted(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.queue.put([request(0), request(1)], NOW)
    assert made.queue.close() == 0
    again = Made(tmp_path)
    again.queue.open(NOW)
    assert again.drained() == [0, 1]
    nowhere = Made(None)
    nowhere.queue.put([request(0), request(1)], NOW)
    assert nowhere.queue.close() == 20


def test_a_disk_that_fails_costs_the_buffer_alone_and_is_said_once(tmp_path: Path, caplog) -> None:
    made = Made(tmp_path)
    made.broken = True
    caplog.set_level(logging.INFO)
    made.queue.open(NOW)
    for number in range(4):
        made.queue.put([request(number)], NOW)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "Read-only file system" in caplog.text
    assert str(tmp_path) in caplog.text
    made.broken = False
    made.queue.put([request(4)], NOW)
    assert made.files() == 1
    assert caplog.records[-1].levelname == "INFO"
    assert made.drained() == [0, 1, 2, 3, 4]
    assert sum(made.figures.dropped.values()) == 0


def test_memory_is_bounded_where_there_is_no_disk(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(push_queue, "MOST_MEMORY", 5000)
    made = Made(None)
    for number in range(10):
        made.queue.put([request(number)], NOW)
    assert made.figures.pending == 5000
    assert made.figures.dropped[OVERFLOW] == 50
    assert len(caplog.records) == 1
    assert made.drained() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("reason", [OVERFLOW, EXPIRED])
@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_dropped_while_it_is_sent_counts_once(
    on_disk: bool, reason: str, is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_queue, "MOST_MEMORY", 5000)
    made = Made(tmp_path if on_disk else None, age=7200.0 if reason == OVERFLOW else 3.0)
    size = 200_000 if on_disk and reason == OVERFLOW else 1000
    made.queue.put([request(0, size)], NOW)
    in_hand = made.queue.head(NOW)
    assert in_hand is not None
    for number in range(1, 7):
        made.queue.put([request(number, size)], NOW + number)
    before = sum(made.figures.dropped.values())
    if is_sent:
        made.queue.done(in_hand)
    left = len(made.drained())
    assert left < 7 and made.figures.dropped[reason] == before + (0 if is_sent else 10)
    assert 10 * (left + is_sent) + made.figures.dropped[reason] == 70


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_too_old_is_dropped_and_counted(tmp_path: Path, on_disk: bool, caplog) -> None:
    made = Made(tmp_path if on_disk else None, age=3.0)
    for number in range(6):
        made.queue.put([request(number)], NOW + number)
    assert made.figures.dropped[EXPIRED] == 20
    assert made.figures.oldest == NOW + 2
    assert made.queue.head(NOW + 100.0) is None
    assert made.figures.dropped[EXPIRED] == 60
    assert len(caplog.records) == 1


def test_damage_is_counted_and_said(tmp_path: Path, caplog) -> None:
    made = Made(tmp_path)
    for number in range(3):
        made.queue.put([request(number)], NOW)
    (path,) = tmp_path.glob("*.segment")
    path.write_bytes(path.read_bytes()[:1024] + b"x" * 1024)
    assert made.drained() == [0]
    assert made.figures.dropped[DAMAGED] == 20
    assert str(path) in caplog.text


def test_pauses_grow_up_to_half_a_minute_and_end_with_an_answer() -> None:
    pace = PushPace(15.0, lambda: 1.0)
    pauses = []
    for _ in range(7):
        pace.failed(100.0)
        pauses.append(pace.not_before - 100.0)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pace.failing
    pace.answered(200.0)
    assert not pace.failing
    pace.failed(300.0)
    assert pace.not_before == 301.0


def test_pauses_are_spread() -> None:
    least, most = PushPace(15.0, lambda: 0.0), PushPace(15.0, lambda: 1.0)
    least.failed(0.0)
    most.failed(0.0)
    assert (least.not_before, most.not_before) == (0.5, 1.0)


def test_a_backlog_is_sent_at_ten_times_the_usual_rate() -> None:
    pace = PushPace(15.0)
    pace.answered(100.0)
    assert pace.not_before == 101.5


def test_a_receiver_that_asks_for_time_gets_it_within_bounds() -> None:
    pace = PushPace(15.0, lambda: 1.0)
    pace.failed(0.0, 20.0)
    assert pace.not_before == 20.0
    pace.failed(0.0, 1e9)
    assert pace.not_before == 300.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("0", 0.0), ("", 0.0), ("-3", 0.0), ("1.5", 0.0), ("9" * 30, 0.0), ("٣", 0.0)]
)
def test_only_a_number_of_seconds_is_read(text: str, seconds: float) -> None:
    assert wished(text) == seconds
