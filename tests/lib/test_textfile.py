"""A name that leads to no ordinary file is refused at once, in one line; nothing waits for a writer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.lib import textfile
from agent.lib.textfile import ReadError, read_bytes, read_text


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def unix_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path


def link_to_a_fifo(path: Path) -> Path:
    path.symlink_to(fifo(path.with_suffix(".fifo")))
    return path


def link_to_itself(path: Path) -> Path:
    path.symlink_to(path)
    return path


def nothing(path: Path) -> Path:
    return path


def too_large(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(2**40)  # a sparse one: a tebibyte that takes no room
    return path


def latin(path: Path) -> Path:
    path.write_bytes(b"first\nsecond: \xe9\n")
    return path


def no_text(path: Path) -> Path:
    path.write_bytes(b"\xff\xfea\0")
    return path


ODD: list[tuple[Callable[[Path], Path], str]] = [
    (fifo, "is a FIFO, not a file; give a regular file"),
    (directory, "is a directory, not a file; name a file in it"),
    (unix_socket, "is a socket, not a file; give a regular file"),
    (link_to_a_fifo, "is a FIFO, not a file; give a regular file"),
    (link_to_itself, "cannot be read: Too many levels of symbolic links"),
    (nothing, "cannot be read: No such file or directory"),
    (too_large, "is larger than 64 KiB; is it the right file?"),
    (latin, "is not UTF-8 text: byte 0xe9 on line 2; save it as UTF-8"),
    (no_text, "is not UTF-8 text: byte 0xff on line 1; save it as UTF-8"),
    (lambda path: path.with_name("x" * 300), "cannot be read: File name too long"),
    (lambda path: Path(f"{path}\0"), "is not a valid file name"),
    (lambda path: Path("/dev/zero"), "is a device, not a file; give a regular file"),
    (lambda path: Path("/dev/full"), "is a device, not a file; give a regular file"),
]


@pytest.mark.parametrize(("make", "problem"), ODD, ids=[problem[:30] for _, problem in ODD])
def test_what_is_not_a_usable_file_is_refused_with_what_it_is(
    make: Callable[[Path], Path], problem: str, tmp_path: Path
) -> None:
    path = make(tmp_path / "file")
    with pytest.raises(ReadError) as caught:
        read_text(path, textfile.SECRET)
    name = str(path).replace("\0", "\\x00")
    assert str(caught.value) == f"{name}: {problem}"
    assert caught.value.missing == (make is nothing)


def test_a_device_is_not_even_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """To open one can do something: a watchdog begins to count, a tape is rewound."""
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda path, *rest: opened.append(path))
    with pytest.raises(ReadError):
        read_text("/dev/zero", 10)
    assert opened == []


def test_a_name_that_becomes_a_fifo_meanwhile_is_refused_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("a")
    real = os.open

    def swapped(name: str, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(name, flags)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(ReadError, match="is a FIFO"):
        read_text(path, 10)


def test_an_ordinary_file_is_read_whole_with_or_without_a_mark_and_through_links(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\r\n".encode())
    (tmp_path / "link").symlink_to(path)
    assert read_text(tmp_path / "link", 8) == "ä\r\n"
    assert read_bytes(str(path), 8) == "\ufeffä\r\n".encode()
    assert read_text("/dev/null", 8) == ""


def test_a_file_may_be_exactly_as_long_as_it_may(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert len(read_bytes(path, 1000)) == 1000
    with pytest.raises(ReadError, match="is larger than"):
        read_bytes(path, 999)


def test_a_file_of_the_kernel_whose_size_is_given_as_0_is_read() -> None:
    assert b"Name:" in read_bytes("/proc/self/status", 64 * 1024)


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[int]]]:
    """A file that grows by a byte whenever it is read, as many times as the list says."""
    path, left = tmp_path / "growing", [0]
    path.write_bytes(b"x")
    real = os.read

    def read(fd: int, count: int) -> bytes:
        content = real(fd, count)
        if left[0] and not content:
            left[0] -= 1
            with path.open("ab") as file:
                file.write(b"y")
        return content

    monkeypatch.setattr(os, "read", read)
    yield path, left


def test_a_file_that_changes_while_it_is_read_is_read_again(changing: tuple[Path, list[int]]) -> None:
    path, left = changing
    left[0] = 2
    assert read_bytes(path, 100) == b"xyy"


def test_a_file_that_never_stops_changing_is_refused(changing: tuple[Path, list[int]]) -> None:
    path, left = changing
    left[0] = 1000
    with pytest.raises(ReadError, match="changed while it was read; write a new file and rename it into place"):
        read_bytes(path, 100)


@pytest.fixture
def pipe() -> Iterator[tuple[str, int]]:
    """The name of a pipe of this process as a shell would give it, and where to write."""
    out, into = os.pipe()
    yield f"/dev/fd/{out}", into
    os.close(out)


def test_a_pipe_of_the_command_line_is_read_to_its_end(pipe: tuple[str, int]) -> None:
    name, into = pipe

    def feed() -> None:
        for piece in (b"groups:\n", b"- name: g\n", b"x" * 100_000):
            os.write(into, piece)
        os.close(into)

    writer = threading.Thread(target=feed)
    writer.start()
    assert read_text(name, textfile.RULES, handed=True) == "groups:\n- name: g\n" + "x" * 100_000
    writer.join()


def test_a_pipe_is_refused_where_it_would_have_to_be_read_again(pipe: tuple[str, int]) -> None:
    name, into = pipe
    os.close(into)
    with pytest.raises(ReadError) as caught:
        read_text(name, 10)
    assert str(caught.value) == f"{name}: is a pipe, which can be read only once; give a regular file"


def test_a_pipe_may_not_give_more_than_a_file_may_have(pipe: tuple[str, int]) -> None:
    name, into = pipe
    os.write(into, b"x" * 2000)
    with pytest.raises(ReadError, match="is larger than 1 KiB"):
        read_text(name, 1024, handed=True)
    os.close(into)


def test_a_named_pipe_is_not_a_pipe_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="is a FIFO"):
        read_text(fifo(tmp_path / "fifo"), 10, handed=True)


def test_a_descriptor_that_is_a_file_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without opening it anew: whoever handed it over may have had other rights."""
    path = tmp_path / "file"
    path.write_text("abc")
    with path.open() as file:
        monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
        for _ in range(2):
            assert read_text(f"/dev/fd/{file.fileno()}", 10) == "abc"


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    with pytest.raises(ReadError, match="cannot be read: Bad file descriptor"):
        read_text("/dev/fd/987", 10, handed=True)


@pytest.mark.parametrize(
    ("most", "shown"), [(2**10, "1 KiB"), (2**20 - 1, "1023 KiB"), (2**20, "1 MiB"), (5 * 2**20, "5 MiB")]
)
def test_the_limit_of_a_file_is_given_in_the_unit_that_suits_it(tmp_path: Path, most: int, shown: str) -> None:
    with pytest.raises(ReadError, match=f"is larger than {shown};"):
        read_text(too_large(tmp_path / "large"), most)
