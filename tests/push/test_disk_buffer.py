"""What waits on the disk survives the process, comes back in order and once, and never takes more than its limit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from exporters.push.disk_buffer import DiskBuffer
from exporters.push.write_request import WriteRequest

LIMIT = 2.0**20


def request(number: int, size: int = 1000) -> WriteRequest:
    return WriteRequest(1000.0 + number, 10, bytes((number % 251,)) * size)


def drained(buffer: DiskBuffer) -> list[WriteRequest]:
    found = []
    while (head := buffer.head()) is not None:
        found.append(head)
        buffer.advance()
    return found


def test_requests_come_back_in_order_and_leave_no_file(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path / "push" / "a", LIMIT)
    for number in range(300):
        assert buffer.append(request(number)) == 0
    assert len(list(buffer.folder.glob("*.segment"))) > 3
    assert drained(buffer) == [request(number) for number in range(300)]
    assert (buffer.bytes, buffer.oldest) == (0, None)
    assert list(buffer.folder.glob("*.segment")) == []
    buffer.append(request(7))
    assert buffer.head() == request(7)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_restart_goes_on_where_the_run_before_stopped(tmp_path: Path, orderly: bool) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    for number in range(200):
        buffer.append(request(number))
    for number in range(150):
        assert buffer.head() == request(number)
        buffer.advance()
    if orderly:
        buffer.close()
    again = DiskBuffer(tmp_path, LIMIT)
    assert again.oldest is not None
    again.append(request(200))
    assert drained(again) == [request(number) for number in range(150, 201)]
    assert DiskBuffer(tmp_path, LIMIT).head() is None


def test_what_was_read_and_not_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    buffer.append(request(1))
    assert buffer.head() == request(1)
    assert DiskBuffer(tmp_path, LIMIT).head() == request(1)


@pytest.mark.parametrize("cut", [1, 500, 1000, 1010, 1023])
def test_a_torn_record_costs_itself(tmp_path: Path, cut: int) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    for number in range(3):
        buffer.append(request(number))
    (path,) = tmp_path.glob("*.segment")
    os.truncate(path, path.stat().st_size - cut)
    again = DiskBuffer(tmp_path, LIMIT)
    assert [each for each, _ in again.damage] == [text for text, _ in again.damage if str(path) in text]
    assert len(again.damage) == 1
    again.append(request(3))
    assert drained(again) == [request(0), request(1), request(3)]


def test_damage_in_the_middle_costs_the_rest_of_its_segment(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    for number in range(100):
        buffer.append(request(number))
    first, *_ = sorted(tmp_path.glob("*.segment"))
    content = bytearray(first.read_bytes())
    content[1100] ^= 1
    first.write_bytes(content)
    found = drained(buffer)
    assert found[0] == request(0)
    assert found[1:] == [request(number) for number in range(100 - len(found) + 1, 100)]
    ((text, samples),) = buffer.damage
    assert "checksum" in text
    assert samples == 10 * (100 - len(found))


def test_a_damaged_position_costs_nothing(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    for number in range(3):
        buffer.append(request(number))
    buffer.head()
    buffer.advance()
    for content in (b"", b"x" * 20, b"x" * 500):
        (tmp_path / "sent").write_bytes(content)
        assert drained_numbers(DiskBuffer(tmp_path, LIMIT))[-2:] == [1, 2]
        buffer = DiskBuffer(tmp_path, LIMIT)
        for number in range(3):
            buffer.append(request(number))


def drained_numbers(buffer: DiskBuffer) -> list[int]:
    return [each.body[0] for each in drained(buffer)]


def test_the_oldest_go_first_when_there_are_too_many(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    dropped = sum(buffer.append(request(number, 10_000)) for number in range(250))
    assert buffer.bytes <= LIMIT
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= LIMIT
    left = drained(buffer)
    assert left == [request(number, 10_000) for number in range(250 - len(left), 250)]
    assert dropped == 10 * (250 - len(left))
    assert len(left) * 10_000 > LIMIT * 0.9


def test_a_full_disk_loses_only_what_did_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    buffer.append(request(0))
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
    assert drained(DiskBuffer(tmp_path, LIMIT)) == [request(0), request(3)]


def test_a_file_that_somebody_removed_costs_itself(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path, LIMIT)
    for number in range(100):
        buffer.append(request(number))
    min(tmp_path.glob("*.segment")).unlink()
    found = drained(buffer)
    assert found == [request(number) for number in range(100 - len(found), 100)]
    assert buffer.damage[0][0].endswith("is gone")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("mine")
    buffer = DiskBuffer(tmp_path, LIMIT)
    buffer.append(request(1))
    drained(buffer)
    assert (tmp_path / "README").read_text() == "mine"
