"""State files are written in the end, whatever the disk does meanwhile, and it is shown while they are not."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.lib import state_files
from agent.lib.state_files import FileState, StateFiles, clear_unfinished, replace_file
from agent.lib.threads import Threads
from tests.waiting import wait_until

WAIT = 10.0


class Disk:
    """Stands where files are replaced: full or hanging when the test says so, and with `troubles` before it is well."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.troubles: list[BaseException] = []
        self.free = threading.Event()
        self.free.set()
        self.asked = 0

    def replace(self, path: Path, content: bytes) -> None:
        self.asked += 1
        self.free.wait(WAIT)
        if self.error is not None:
            raise self.error
        if self.troubles:
            raise self.troubles.pop()
        replace_file(path, content)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(state_files, "replace_file", made.replace)
    monkeypatch.setattr(state_files, "AGAIN_SECONDS", 0.01)
    return made


@pytest.fixture
def files(disk: Disk) -> Iterator[StateFiles]:
    made = StateFiles(Threads(), wall=lambda: 1e9)
    yield made
    disk.error = None
    disk.free.set()
    made.stop(WAIT)


def test_only_the_newest_content_counts(files: StateFiles, disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "still" / "alerts.state"
    disk.free.clear()
    files.put(path, b"0")
    wait_until(lambda: disk.asked == 1)
    for content in (b"1", b"2", b"3"):
        files.put(path, content)
    disk.free.set()
    wait_until(lambda: path.exists() and path.read_bytes() == b"3")
    assert disk.asked == 2
    wait_until(lambda: files.states() == [FileState("alerts.state", True, 0, 1e9)])
    assert [each.name for each in path.parent.iterdir()] == ["alerts.state"]


class Content(bytes):
    """Says when nobody holds it any more."""

    gone = threading.Event()

    def __del__(self) -> None:
        self.gone.set()


def test_what_is_written_is_let_go_while_nothing_else_is_to_be_written(files: StateFiles, tmp_path: Path) -> None:
    """It is megabytes, and the next may be a quarter of a minute later."""
    files.put(tmp_path / "state", Content(b"x"))
    assert Content.gone.wait(WAIT)
    assert (tmp_path / "state").read_bytes() == b"x"


def test_what_a_full_disk_did_not_take_is_written_once_it_can_be(
    files: StateFiles, disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "alerts.state"
    disk.error = OSError(28, "No space left on device")
    files.put(path, b"it")
    wait_until(lambda: files.states()[0].failures >= 3)
    assert not files.states()[0].good
    disk.error = None
    wait_until(lambda: files.states()[0].good)
    assert path.read_bytes() == b"it"
    wait_until(lambda: len(caplog.records) > 1)
    assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.INFO]
    assert str(path) in caplog.text and "No space left" in caplog.text


def test_a_folder_that_cannot_be_is_reported_with_the_state_file_alone(
    files: StateFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with the temporary file beside it, nor with a number that only a programmer knows."""
    (tmp_path / "state").touch()
    path = tmp_path / "state" / "alerts.state"
    assert state_files.load_state(path, bytes, state_files.log, "starting without it") is None
    files.put(path, b"it")
    wait_until(lambda: len(caplog.records) == 2)
    why = f"{path}: Not a directory; "
    assert [each.getMessage().partition(why)[::2] for each in caplog.records] == [
        ("cannot read ", "starting without it"),
        ("cannot write ", "retrying, a restart before that loses this state"),
    ]


def test_a_file_that_cannot_be_written_does_not_hold_up_the_others(
    files: StateFiles, disk: Disk, tmp_path: Path
) -> None:
    disk.troubles = [MemoryError(), RuntimeError("odd")]
    (tmp_path / "bad").mkdir()
    for name in ("bad", "good", "better"):
        files.put(tmp_path / name, name.encode())
    wait_until(lambda: (tmp_path / "good").exists() and (tmp_path / "better").exists())
    assert {state.name: state.good for state in files.states()} == {"bad": False, "good": True, "better": True}


def test_the_end_is_written_and_a_disk_that_hangs_is_not_waited_for(disk: Disk, tmp_path: Path, caplog) -> None:
    files = StateFiles(Threads())
    files.put(tmp_path / "last", b"words")
    files.stop(WAIT)
    assert (tmp_path / "last").read_bytes() == b"words"
    assert not caplog.records
    hung = StateFiles(Threads())
    disk.free.clear()
    hung.put(tmp_path / "never", b"")
    hung.stop(0.05)
    assert len(caplog.records) == 1
    disk.free.set()


def test_a_disk_that_hangs_without_an_error_is_told_as_one_that_fails(disk: Disk, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    at = [100.0]
    files = StateFiles(Threads(), lambda: at[0], lambda: 1e9 + at[0])
    files.put(tmp_path / "state", b"first")
    wait_until(lambda: files.states()[0].written == 1e9 + 100)
    disk.free.clear()
    files.put(tmp_path / "state", b"second")
    wait_until(lambda: disk.asked == 2)
    at[0] += state_files.HANGS_SECONDS
    files.put(tmp_path / "state", b"third")
    assert files.states()[0].good
    at[0] += 1
    assert files.states() == [FileState("state", False, 0, 1e9 + 100, state_files.HANGS_SECONDS + 1)] == files.states()
    disk.free.set()
    wait_until(lambda: files.states()[0] == FileState("state", True, 0, 1e9 + at[0]))
    files.stop(WAIT)
    assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.INFO]
    assert (tmp_path / "state").read_bytes() == b"third"


def test_what_is_written_is_not_written_again_and_what_fails_at_the_end_is_given_up(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = StateFiles(Threads())
    files.put(tmp_path / "state", b"it")
    wait_until(lambda: files.states()[0].good and (tmp_path / "state").exists())
    files.stop(WAIT)
    assert disk.asked == 1
    files = StateFiles(Threads())
    disk.free.clear()
    disk.error = OSError(28, "No space left on device")
    files.put(tmp_path / "state", b"more")
    wait_until(lambda: disk.asked == 2)
    threading.Timer(0.05, disk.free.set).start()
    files.stop(WAIT)
    assert disk.asked == 2
    assert ["leaving without" in each.getMessage() for each in caplog.records] == [False]


def test_a_write_that_fails_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()  # so that the last step, the renaming, fails
    for name, why in (("state", "directory"), ("x" * 250, "too long")):
        with pytest.raises(OSError, match=why):
            replace_file(tmp_path / name, b"it")
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_what_killed_processes_left_is_removed_and_what_is_being_written_stays(tmp_path: Path) -> None:
    left = {"windows.state.x.new", f"alerts.state.{os.getppid()}.new", "alerts.state"}
    for name in (*left, "alerts.state.999999999.new"):
        (tmp_path / name).touch()
    clear_unfinished(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == left


def test_a_state_directory_that_has_to_be_made_is_reported_once(files: StateFiles, tmp_path: Path, caplog) -> None:
    path = tmp_path / "a" / "alerts.state"
    for content in (b"1", b"2"):
        files.put(path, content)
        wait_until(lambda content=content: path.exists() and path.read_bytes() == content)
    files.put(tmp_path / "b.state", b"3")
    wait_until(lambda: (tmp_path / "b.state").exists())
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"created the missing state directory {path.parent} as user {os.geteuid()}"]
