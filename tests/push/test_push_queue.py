"""What waits for a receiver: in memory while it answers, on the disk when it does not; and how often it is asked."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from exporters.push import push_queue
from exporters.push.disk_buffer import HEAD_BYTES, DiskBuffer
from exporters.push.push_queue import DAMAGED, EXPIRED, OVERFLOW, PushFigures, PushPace, PushQueue
from exporters.push.remote_write import parse_retry_after
from exporters.push.write_request import WriteRequest

NOW = 1000.0


def request(number: int, size: int = 1000) -> WriteRequest:
    return WriteRequest(NOW + number, 10, bytes((number % 251,)) * size)


class Made:
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

    def put(self, *numbers: int) -> None:
        """One after the other, as at this second."""
        for number in numbers:
            self.queue.put([request(number)], NOW)

    def files(self) -> int:
        return len(list(self.folder.glob("*.segment"))) if self.folder is not None else 0

    def drained(self) -> list[int]:
        found = []
        while (head := self.queue.head(NOW)) is not None:
            found.append(head.body[0])
            self.queue.done(head)
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
    assert made.files() == 1
    assert made.figures.pending == 2 * (1000 + HEAD_BYTES)
    assert made.figures.oldest == NOW
    after_a_crash = Made(tmp_path)
    after_a_crash.queue.open(NOW)
    assert after_a_crash.figures.oldest == NOW
    assert in_hand is not None
    made.queue.done(in_hand)
    assert made.drained() == [1], "what was written down while it was sent is not sent again"
    after_a_crash.put(2)
    assert after_a_crash.drained() == [0, 1, 2]


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
    made.put(*range(4))
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "Read-only file system" in caplog.text
    assert str(tmp_path) in caplog.text
    made.broken = False
    made.put(4)
    assert made.files() == 1
    assert caplog.records[-1].levelname == "INFO"
    assert made.drained() == [0, 1, 2, 3, 4]
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


@pytest.mark.parametrize(
    ("at", "damage", "said"), [(1024, b"x" * 1024, "no record where one should begin"), (1100, b"\xff", "checksum")]
)
def test_damage_costs_the_rest_of_its_segment_and_is_counted_and_said(
    tmp_path: Path, at: int, damage: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = Made(tmp_path)
    made.put(*range(3))
    (path,) = tmp_path.glob("*.segment")
    content = path.read_bytes()
    path.write_bytes(content[:at] + damage + content[at + len(damage) :])
    assert made.drained() == [0]
    assert made.figures.dropped[DAMAGED] == 20
    assert str(path) in caplog.text
    assert said in caplog.text


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


# What waits on the disk survives the process, comes back in order and once, and never takes more than its limit.
LIMIT = 2.0**20


def filled(folder: Path, count: int) -> DiskBuffer:
    buffer = DiskBuffer(folder, LIMIT)
    for number in range(count):
        assert buffer.append(request(number)) == 0
    return buffer


def drained(buffer: DiskBuffer) -> list[WriteRequest]:
    found = []
    while (head := buffer.head()) is not None:
        found.append(head)
        buffer.advance()
    return found


@pytest.mark.parametrize("orderly", [True, False])
def test_a_restart_goes_on_where_the_run_before_stopped(tmp_path: Path, orderly: bool) -> None:
    (tmp_path / "of-others").write_text("mine")
    buffer = filled(tmp_path, 300)
    assert len(list(tmp_path.glob("*.segment"))) > 3
    for number in range(150):
        assert buffer.head() == request(number)
        buffer.advance()
    assert buffer.head() == request(150)  # which is read, and not sent
    if orderly:
        buffer.close()
    again = DiskBuffer(tmp_path, LIMIT)
    assert again.oldest is not None
    again.append(request(300))
    assert drained(again) == [request(number) for number in range(150, 301)]
    assert (again.bytes, again.oldest) == (0, None)
    assert DiskBuffer(tmp_path, LIMIT).head() is None
    assert {each.name for each in tmp_path.iterdir()} == {"of-others", "sent"}
    again.append(request(7))
    assert again.head() == request(7)


@pytest.mark.parametrize("cut", [1, 500, 1000, 1010, 1023])
def test_a_torn_record_costs_itself(tmp_path: Path, cut: int) -> None:
    filled(tmp_path, 3)
    (path,) = tmp_path.glob("*.segment")
    os.truncate(path, path.stat().st_size - cut)
    again = DiskBuffer(tmp_path, LIMIT)
    assert [each for each, _ in again.damage] == [text for text, _ in again.damage if str(path) in text]
    assert len(again.damage) == 1
    again.append(request(3))
    assert drained(again) == [request(0), request(1), request(3)]


def test_a_damaged_position_costs_nothing(tmp_path: Path) -> None:
    buffer = filled(tmp_path, 3)
    buffer.head()
    buffer.advance()
    for content in (b"", b"x" * 20, b"x" * 500):
        (tmp_path / "sent").write_bytes(content)
        assert drained(DiskBuffer(tmp_path, LIMIT))[-2:] == [request(1), request(2)]
        filled(tmp_path, 3)


def test_the_oldest_go_first_when_there_are_too_many(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    dropped = sum(buffer.append(request(number, 10_000)) for number in range(250))
    assert buffer.bytes <= LIMIT
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= LIMIT
    left = drained(buffer)
    assert left == [request(number, 10_000) for number in range(250 - len(left), 250)]
    assert dropped == 10 * (250 - len(left))
    assert len(left) * 10_000 > LIMIT * 0.9


def test_a_full_disk_loses_only_what_did_not_fit_and_a_file_that_somebody_removed_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = filled(tmp_path, 1)
    write, room = os.write, [500]

    def filling(descriptor: int, content: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken, room[0] = content[: room[0]], 0
        return write(descriptor, taken)

    monkeypatch.setattr(os, "write", filling)
    for number in (1, 2):
        with pytest.raises(OSError, match="No space"):
            buffer.append(request(number))
    monkeypatch.undo()
    buffer.append(request(3))
    again = DiskBuffer(tmp_path, LIMIT)
    assert drained(again) == [request(0), request(3)]
    for number in range(100):
        again.append(request(number))
    min(tmp_path.glob("*.segment")).unlink()
    found = drained(again)
    assert found == [request(number) for number in range(100 - len(found), 100)]
    assert again.damage[-1][0].endswith("is gone")
