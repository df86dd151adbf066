"""What waits for a receiver: in memory while it answers, on the disk when it does not; and how often it is asked."""

import errno
import logging
import os
from pathlib import Path

import pytest

from agent.lib.state_files import seal
from exporters.push import push_queue
from exporters.push.push_queue import DAMAGED, EXPIRED, FORM, OVERFLOW, PushFigures, PushPace, PushQueue
from exporters.push.remote_write import parse_retry_after
from exporters.push.write_request import WriteRequest

NOW = 1000.0


def request(number: int, size: int = 1000) -> WriteRequest:
    return WriteRequest(NOW + number, 10, bytes((number % 251,)) * size)


class Made:
    def __init__(self, folder: Path | None, age: float = 7200.0) -> None:
        self.folder = folder
        self.figures = PushFigures("central")
        self.queue = PushQueue(folder, 2.0**20, age, self.figures)

    def put(self, *numbers: int) -> None:
        """One after the other, as at this second."""
        for number in numbers:
            self.queue.put([request(number)], NOW)

    def files(self) -> int:
        return len(list(self.folder.glob("*.request"))) if self.folder is not None else 0

    def drained(self) -> list[int]:
        found = []
        while (head := self.queue.head(NOW)) is not None:
            found.append(head.body[0])
            self.queue.done()
        return found


def test_only_what_was_not_sent_before_the_next_comes_goes_to_the_disk_and_stays_in_order(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for number in range(5):
        made.put(number)
        assert made.drained() == [number]
    assert (made.files(), made.figures.pending, made.figures.oldest) == (0, 0, None)
    made.put(0)
    assert made.files() == 0
    in_hand = made.queue.head(NOW)
    made.put(1)
    assert made.files() == 2
    assert made.figures.pending == sum(each.stat().st_size for each in tmp_path.iterdir()) > 2000
    assert made.figures.oldest == NOW
    after_a_crash = Made(tmp_path)
    after_a_crash.queue.open(NOW)
    assert after_a_crash.figures.oldest == NOW
    assert in_hand == request(0)
    made.queue.done()
    assert made.drained() == [1], "what was written down while it was sent is not sent again"
    after_a_crash.put(2)
    assert after_a_crash.drained() == [2], "what was sent is not sent again"


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
    folder, moved = tmp_path / "buffer", tmp_path / "moved"
    Made(folder).put(5, 6)
    folder.rename(moved)
    folder.write_text("in the way")
    made = Made(folder)
    caplog.set_level(logging.INFO)
    made.queue.open(NOW)
    made.put(*range(4))
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert f"cannot use {folder}" in caplog.text
    folder.unlink()
    moved.rename(folder)
    made.put(4)
    assert made.files() == 7
    assert caplog.records[-1].levelname == "INFO"
    assert made.drained() == [5, 6, 0, 1, 2, 3, 4]
    assert sum(made.figures.dropped.values()) == 0


def test_memory_is_bounded_where_there_is_no_disk(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(push_queue, "MAX_MEMORY_BYTES", 5000)
    made = Made(None)
    made.put(*range(10))
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
    monkeypatch.setattr(push_queue, "MAX_MEMORY_BYTES", 5000)
    made = Made(tmp_path if on_disk else None, age=7200.0 if reason == OVERFLOW else 3.0)
    size = 200_000 if on_disk and reason == OVERFLOW else 1000
    made.queue.put([request(0, size)], NOW)
    in_hand = made.queue.head(NOW)
    assert in_hand is not None
    for number in range(1, 7):
        made.queue.put([request(number, size)], NOW + number)
    dropped = made.figures.dropped[reason]
    assert dropped > 0
    if is_sent:
        made.queue.done()
    else:
        made.queue.failed()
        made.queue.put([], NOW + 6)
    assert made.figures.dropped[reason] == dropped + (10 if reason == EXPIRED and not is_sent else 0)
    assert 10 * (len(made.drained()) + is_sent) + made.figures.dropped[reason] == 70


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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not start with"),
        (seal(FORM), "holds no request"),
        (b"x" * 1024, "does not start with"),
        (None, "is gone"),
    ]
    + [(seal(FORM, b"body")[:-cut], said) for cut, said in ((1, "checksum"), (6, "checksum"), (25, "not start with"))],
)
def test_a_damaged_file_costs_its_request_and_is_counted_and_said(
    tmp_path: Path, content: bytes | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = Made(tmp_path)
    made.put(*range(3))
    path = sorted(tmp_path.iterdir())[1]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert made.drained() == [0, 2]
    assert made.figures.dropped[DAMAGED] == 10
    assert str(path) in caplog.text
    assert said in caplog.text
    assert (made.files(), made.figures.pending) == (0, 0)


def test_pauses_grow_up_to_half_a_minute_are_spread_as_the_receiver_wishes_and_end_with_an_answer() -> None:
    pace = PushPace(15.0, lambda: 1.0)
    pauses = []
    for _ in range(7):
        pace.failed(100.0)
        pauses.append(pace.not_before - 100.0)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pace.failing
    pace.answered(200.0)
    assert not pace.failing
    assert pace.not_before == 201.5  # a backlog is sent at ten times the usual rate
    for asked, pause in ((0.0, 1.0), (20.0, 20.0), (1e9, 300.0)):
        pace.failed(300.0, asked)
        assert pace.not_before == 300.0 + pause
        pace.answered(300.0)
    half = PushPace(15.0, lambda: 0.0)
    half.failed(0.0)
    assert half.not_before == 0.5, "half as long, if chance has it"


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("0", 0.0), ("", 0.0), ("-3", 0.0), ("1.5", 0.0), ("9" * 30, 0.0), ("٣", 0.0)]
)
def test_only_a_number_of_seconds_is_read(text: str, seconds: float) -> None:
    assert parse_retry_after(text) == seconds


@pytest.mark.parametrize("orderly", [True, False])
def test_a_restart_goes_on_where_the_run_before_stopped(tmp_path: Path, orderly: bool) -> None:
    (tmp_path / "of-others").write_text("mine")
    made = Made(tmp_path)
    made.put(*range(60))
    for number in range(40):
        assert made.queue.head(NOW) == request(number)
        made.queue.done()
    assert made.queue.head(NOW) == request(40)  # which is read, and not sent
    if orderly:
        assert made.queue.close() == 0
    (tmp_path / "0000000061-1061.000000-10.request.999999999.new").write_text("torn by a crash")
    again = Made(tmp_path)
    again.queue.open(NOW)
    assert again.figures.oldest == NOW + 40
    again.put(60)
    assert again.drained() == list(range(40, 61))
    assert (again.figures.pending, again.figures.oldest) == (0, None)
    assert [each.name for each in tmp_path.iterdir()] == ["of-others"]


def test_the_oldest_on_the_disk_go_first_when_there_are_too_many(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for number in range(60):
        made.queue.put([request(number, 40_000)], NOW)
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    assert made.figures.pending == size
    assert 0.95 * 2**20 < size <= 2**20
    left = made.drained()
    assert left == list(range(60 - len(left), 60))
    assert made.figures.dropped[OVERFLOW] == 10 * (60 - len(left))


def test_a_full_disk_keeps_what_did_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path)
    made.put(0, 1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    made.put(2, 3)
    assert made.files() == len(list(tmp_path.iterdir())) == 2
    monkeypatch.undo()
    made.put(4)
    again = Made(tmp_path)
    again.queue.open(NOW)
    assert again.drained() == [0, 1, 2, 3, 4]


def test_a_disk_that_cannot_be_read_does_not_hold_up_what_is_in_memory(tmp_path: Path, caplog) -> None:
    made = Made(tmp_path)
    made.put(0, 1)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    tmp_path.write_text("in the way")
    made.put(2, 3)
    assert made.queue.head(NOW) == request(2)
    made.queue.done()
    tmp_path.unlink()
    moved.rename(tmp_path)
    assert made.drained() == [0, 1, 3]
    assert sum(made.figures.dropped.values()) == 0
    assert len(caplog.records) == 1
