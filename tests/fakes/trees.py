"""What may stand in the place of a file of sysfs or procfs: a seeded choice of everything that real nodes have shown.

Nothing here needs a driver. An error of a read is that of a file which really answers so: /proc/self/mem at its
beginning is EIO, a terminal that a process does not have is ENXIO.
"""

import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

HUGE = b"7" * (4 << 20)

Spoil = Callable[[Path, random.Random], object]


def _link(target: str) -> Spoil:
    return lambda path, dice: path.symlink_to(target)


def _content(content: bytes) -> Spoil:
    return lambda path, dice: path.write_bytes(content)


def _socket(path: Path, dice: random.Random) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path.name)
    finally:
        os.chdir(here)


def _folder(path: Path, dice: random.Random) -> None:
    path.mkdir()
    (path / "inside").write_text("1\n")


KINDS: dict[str, Spoil] = {
    "missing": lambda path, dice: None,
    "empty": _content(b""),
    "blank": _content(b" \n"),
    "huge": _content(HUGE),
    "binary": lambda path, dice: path.write_bytes(dice.randbytes(dice.randint(1, 5000))),
    "zeros": _content(bytes(100)),
    "negative": _content(b"-1\n"),
    "wide": _content(b"99999999999999999999999\n"),
    "float": _content(b"1.5e3\n"),
    "not a number": _content(b"nan\n"),
    "not offered": _content(b"N/A (no PMA)\n"),
    "words": _content(b"<not supported>\n"),
    "other digits": _content("١٢٣\n".encode()),
    "folder": _folder,
    "loop": lambda path, dice: path.symlink_to(path.name),
    "dangling": _link("nowhere"),
    "endless": _link("/dev/zero"),
    "EIO": _link("/proc/self/mem"),
    "ENXIO": _link("/dev/tty"),
    "socket": _socket,
}
if os.geteuid() == 0:
    KINDS["EINVAL"] = _link("/proc/self/clear_refs")  # it can only be written; a read has nothing to give
else:
    KINDS["EACCES"] = lambda path, dice: (path.write_bytes(b"1\n"), path.chmod(0))


class OddTree:
    """Spoils files of a tree. `pipes` are those that hang, until `release`."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.pipes: list[Path] = []

    def spoil(self, path: Path, kind: str | None = None) -> None:
        """Put something else in the place of a file or folder: of this kind, or of any."""
        clear(path)
        KINDS[kind or self.dice.choice(list(KINDS))](path, self.dice)

    def hang(self, path: Path) -> None:
        """Opening the file does not return."""
        clear(path)
        os.mkfifo(path)
        self.pipes.append(path)

    def release(self) -> None:
        """Let go who hangs; each finds an empty file."""
        for path in self.pipes:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        self.pipes.clear()


def clear(path: Path) -> None:
    """Take away whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
