"""The lock on a state directory: one holder, a short wait for one that stops, and no lock where none can be had."""

import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.lib import directory_lock
from agent.lib.directory_lock import DirectoryInUseError, DirectoryLock, lock_directory


@pytest.fixture
def held(tmp_path: Path) -> Iterator[DirectoryLock]:
    lock = lock_directory(tmp_path / "state", "process 7 on n1", lambda _: None)
    assert lock is not None
    yield lock
    lock.stop()


@pytest.mark.usefixtures("held")
def test_the_second_waits_and_is_told_who_holds_it(tmp_path: Path) -> None:
    waits: list[float] = []
    with pytest.raises(DirectoryInUseError, match="process 7 on n1"):
        lock_directory(tmp_path / "state", "process 8 on n1", waits.append)
    assert sum(waits) == pytest.approx(directory_lock.WAIT_SECONDS)
    assert (tmp_path / "state" / directory_lock.FILE).read_text() == "process 7 on n1\n"


def test_a_holder_that_stops_meanwhile_is_waited_for(tmp_path: Path, held: DirectoryLock) -> None:
    lock = lock_directory(tmp_path / "state", "process 8 on n1", lambda _: held.stop())
    assert lock is not None
    with pytest.raises(DirectoryInUseError, match="process 8 on n1"):
        lock_directory(tmp_path / "state", "process 9 on n1", lambda _: None)
    lock.stop()


def test_a_directory_that_offers_no_lock_costs_a_warning_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert lock_directory(tmp_path / "file" / "state", "me", lambda _: None) is None

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert lock_directory(tmp_path, "me", lambda _: None) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "Not a directory" in caplog.text and "No locks available" in caplog.text
