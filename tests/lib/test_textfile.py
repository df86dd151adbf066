"""A name that leads to no ordinary file is refused at once, in one line; nothing waits for a writer."""

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


def test_a_name_that_becomes_a_fifo_meanwhile_is_refused_without_waiting(tmp_path: Path, monkeypatch) -> None:
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


def test_an_ordinary_file_is_read_whole_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\r\n".encode())
    (tmp_path / "link").symlink_to(path)
    assert read_text(tmp_path / "link", 8) == "ä\r\n"
    assert read_bytes(str(path), 8) == "\ufeffä\r\n".encode()
    assert read_text("/dev/null", 8) == ""
    assert b"Name:" in read_bytes("/proc/self/status", 64 * 1024), "its size is given as 0"
    path.write_bytes(b"x" * 1000)
    assert len(read_bytes(path, 1000)) == 1000
    with pytest.raises(ReadError, match="is larger than"):
        read_bytes(path, 999)


@pytest.mark.parametrize("times", [2, 1000])
def test_a_file_that_changes_while_it_is_read_is_read_again_but_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    path, left = tmp_path / "growing", times
    path.write_bytes(b"x")
    real = os.read

    def read(fd: int, count: int) -> bytes:
        """Read, and let the file grow by a byte at its end."""
        nonlocal left
        content = real(fd, count)
        if left and not content:
            left -= 1
            with path.open("ab") as file:
                file.write(b"y")
        return content

    monkeypatch.setattr(os, "read", read)
    if times == 2:
        assert read_bytes(path, 100) == b"xyy"
        return
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


def test_a_pipe_is_refused_unless_it_is_of_the_command_line(pipe: tuple[str, int], tmp_path: Path) -> None:
    name, into = pipe
    with pytest.raises(ReadError, match=f"^{name}: is a pipe, which can be read only once; give a regular file$"):
        read_text(name, 10)
    os.write(into, b"x" * 2000)
    with pytest.raises(ReadError, match="is larger than 1 KiB"):
        read_text(name, 1024, handed=True)
    os.close(into)
    with pytest.raises(ReadError, match="is a FIFO"):
        read_text(fifo(tmp_path / "fifo"), 10, handed=True)
    with pytest.raises(ReadError, match="cannot be read: Bad file descriptor"):
        read_text("/dev/fd/987", 10, handed=True)


def test_a_descriptor_that_is_a_file_is_read_from_its_beginning(tmp_path: Path, monkeypatch) -> None:
    """Without opening it anew: whoever handed it over may have had other rights.

    Nor is a device opened: that can do something, as a watchdog begins to count and a tape is rewound.
    """
    path = tmp_path / "file"
    path.write_text("abc")
    with path.open() as file:
        monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
        with pytest.raises(ReadError):
            read_text("/dev/zero", 10)
        for _ in range(2):
            assert read_text(f"/dev/fd/{file.fileno()}", 10) == "abc"


@pytest.mark.parametrize(
    ("most", "shown"), [(2**10, "1 KiB"), (2**20 - 1, "1023 KiB"), (2**20, "1 MiB"), (5 * 2**20, "5 MiB")]
)
def test_the_limit_of_a_file_is_given_in_the_unit_that_suits_it(tmp_path: Path, most: int, shown: str) -> None:
    with pytest.raises(ReadError, match=f"is larger than {shown};"):
        read_text(too_large(tmp_path / "large"), most)
