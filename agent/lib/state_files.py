"""Files that outlive the process: written atomically, with a checksum, in a thread of their own.

A disk that hangs must not block anything else. A failed write is retried until it succeeds, or until newer content
replaces it. A damaged file is set aside.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import zlib
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent.lib import textfile
from agent.lib.threads import CLOSING_SECONDS, Threads

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

MOST = 128 * 2**20
"""Most bytes of a file that is read: twice what the windows may take. A damaged filesystem may show any size."""
_UNFINISHED = ".new"


class DamagedError(ValueError):
    """The content of a file cannot be used."""


def seal(form: str, *body: Buffer) -> bytes:
    """Return the parts of a body below a line with the name of its form and its checksum."""
    checksum = reduce(lambda so_far, part: zlib.crc32(part, so_far), body, 0)
    return b"".join((f"{form} {checksum:08x}\n".encode("ascii"), *body))


def unseal(form: str, content: bytes) -> bytes:
    """Return the body of sealed content. Raises DamagedError for another form, or if a byte has changed."""
    head, _, body = content.partition(b"\n")
    name, _, checksum = head.decode("ascii", "replace").partition(" ")
    if name != form:
        raise DamagedError(f"does not start with {form}")
    if checksum != f"{zlib.crc32(body):08x}":
        raise DamagedError("its checksum is wrong")
    return body


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, so that neither a crash nor a power failure leaves half of it. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}{_UNFINISHED}")  # two processes must not write the same one
    with contextlib.suppress(FileExistsError):  # a file in place of the folder: opening says so more plainly
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    with contextlib.suppress(OSError):  # some filesystems do not offer to sync a folder, and do without
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def clear_unfinished(folder: Path) -> None:
    """Remove what processes left behind that were killed while writing."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"*{_UNFINISHED}"):
            pid = path.name.removesuffix(_UNFINISHED).rpartition(".")[2]
            if pid.isascii() and pid.isdigit() and not _is_alive(int(pid)):
                path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return pid != os.getpid()


def read_whole(path: Path) -> bytes:
    """Return the content of a file.

    Raises OSError if it is missing or cannot be read, and DamagedError for what the agent cannot have written: a
    file that is too large, or not a regular one.
    """
    try:
        return textfile.read_bytes(path, MOST)
    except textfile.ReadError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise DamagedError(error.problem) from None


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that it can be examined; returns its new name, even if that failed."""
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):
        path.replace(aside)
    return aside


def load_state(
    path: Path, understand: Callable[[bytes], T], log: logging.Logger, without: str, *, keep: bool = False
) -> T | None:
    """Return what a state file says; None without one that can be used: `without` says what that costs.

    `understand` raises DamagedError. A damaged file is set aside, or with `keep` left where it is.
    """
    try:
        return understand(read_whole(path))
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("cannot read %s: %s; %s", path, error.strerror or error, without)
    except DamagedError as error:
        where = "left alone" if keep else f"set aside as {set_aside(path)}"
        log.warning("%s is damaged: %s; %s, %s", path, error, where, without)
    return None


log = logging.getLogger("coldplate.state")

AGAIN_SECONDS = 5.0
"""Seconds until a failed write is tried again."""
HANGS_SECONDS = 15.0
"""Seconds that content waits for a disk that has reported no failure until the file counts as not written."""


class FileState(NamedTuple):
    """The state of one file: whether its newest content is on the disk, as far as is known, and failed attempts.

    `written` is when it was last written, in seconds since the epoch; None if not in this run. `waiting` is for how
    many seconds the disk has not had its content although it should.
    """

    name: str
    good: bool
    failures: int
    written: float | None = None
    waiting: float = 0.0


class StateFiles:
    """The writer of all state files. `mono` gives monotonic seconds, and `wall` those since the epoch."""

    def __init__(
        self, threads: Threads, mono: Callable[[], float] = lambda: 0.0, wall: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._mono, self._wall = mono, wall
        self._work = threading.Condition()
        self._pending: dict[Path, bytes] = {}
        self._since: dict[Path, float] = {}
        """Since when there has been content that is not on the disk."""
        self._states: dict[Path, FileState] = {}
        self._hanging: set[Path] = set()
        self._stopping = False
        self._thread = threads.begin("state", self._run)

    def start(self) -> None:
        """Do nothing: content may come before the daemon's parts start, and so the thread runs from the beginning."""

    def put(self, path: Path, content: bytes) -> None:
        """Have this content written to the file soon. Returns at once."""
        with self._work:
            self._pending[path] = content
            self._since.setdefault(path, self._mono())
            self._states.setdefault(path, FileState(path.name, True, 0))
            self._work.notify()

    def stop(self, seconds: float = CLOSING_SECONDS) -> None:
        """Write what is left, and end; wait at most this many seconds for the disk."""
        with self._work:
            self._stopping = True
            self._work.notify()
        if not self._thread.join(seconds):
            log.warning("state not written within %.0f s; stopping without it", seconds)

    def states(self) -> list[FileState]:
        """Return the state of each file. For any thread."""
        with self._work:
            now = self._mono()
            waiting = {path: max(now - since, 0.0) for path, since in self._since.items()}
            late = {path for path, seconds in waiting.items() if seconds > HANGS_SECONDS and self._states[path].good}
            new, self._hanging = late - self._hanging, late
            states = [
                state._replace(good=state.good and path not in late, waiting=waiting.get(path, 0.0))
                for path, state in self._states.items()
            ]
        for path in new:
            log.warning("state write stalled: %s not written for %.0f s", path, waiting[path])
        return states

    def _run(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Wait for a file and write it; False at the end.

        A function of its own, so that nothing holds the megabytes of the last file while it waits for the next.
        """
        with self._work:
            self._work.wait_for(lambda: self._pending or self._stopping)
            if not self._pending:
                return False
            path, content = next(iter(self._pending.items()))
        good = self._write(path, content)
        with self._work:
            answers = good and path in self._hanging
            if answers:
                self._hanging.discard(path)
            if self._pending[path] is content:  # else there is newer content
                del self._pending[path]
                if not good and not self._stopping:
                    self._pending[path] = content  # after the others
                else:
                    del self._since[path]
            elif good:
                self._since[path] = self._mono()
            if not good:
                self._work.wait_for(lambda: self._stopping, AGAIN_SECONDS)
        if answers:
            log.info("state write recovered: %s", path)
        return True

    def _write(self, path: Path, content: bytes) -> bool:
        before = self._states[path]
        try:
            is_new = not os.path.exists(path.parent)  # noqa: PTH110 - unlike Path's, it never raises
            replace_file(path, content)
        except OSError as error:
            self._states[path] = before._replace(good=False, failures=before.failures + 1)
            if before.good:
                reason = error.strerror or error
                log.warning("cannot write %s: %s; retrying, a restart before that loses this state", path, reason)
            return False
        self._states[path] = FileState(path.name, True, before.failures, self._wall())
        if is_new:
            log.warning("created the missing state directory %s as user %d", path.parent, os.geteuid())
        if not before.good:
            log.info("state write recovered: %s", path)
        return True
