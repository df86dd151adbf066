"""Reads many files with one thread; a file that hangs blocks that thread and nothing else.

A read of sysfs or procfs may hang for a minute or forever: an adapter whose firmware does not answer, a disk that is
gone. So a caller passes legs, each with the files of one device, and one reader goes through them all. When a file
blocks it for longer than `QUICK_SECONDS`, another reader takes over the waiting devices; when that file has not
answered within the caller's timeout it is left to its reader, and another one continues after it. A device blocks at
most two readers, because one whose firmware hangs answers nothing, and a file never has more than one read in flight.

While nothing hangs this takes one thread and one hand-over per round, and none per file.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from agent.model import Reason

log = logging.getLogger("coldplate.backend")

QUICK_SECONDS = 0.03
"""Seconds without any progress after which another reader takes over what waits."""
PATIENCE_SECONDS = 0.5
"""The default timeout: seconds after which a file is left to its reader."""
LONGEST = 3.0
"""How many timeouts one device may take in a round, however many of its files are slow."""
PER_DEVICE = 2
"""Most readers that one device may occupy."""
READERS = 32
"""Most threads in all, however many devices hang."""
FIRST = 0.25
"""Share of them that no device gets as its second reader: if a dozen adapters hang, the next one is still read."""
TOLD = 64
"""Most paths remembered as already logged."""

R = TypeVar("R")
E = TypeVar("E", bound=Exception)
R_co = TypeVar("R_co", covariant=True)


class ReadItem(Protocol[R_co]):
    """One thing to read, named by its path. Never read by two threads at once."""

    path: str

    def read(self) -> R_co:
        """Return its content.

        The item turns errors into answers; an exception that it raises is a defect, and is logged.
        """


class PathRead(Struct, Generic[R]):
    """Reads a path, or what is named so, with a function."""

    path: str
    call: Callable[[str], R]

    def read(self) -> R:
        return self.call(self.path)


class CaughtRead(Struct, Generic[R, E]):
    """The same, where an error of the expected type is an answer."""

    path: str
    call: Callable[[str], R]
    expected: type[E]

    def read(self) -> R | E:
        try:
            return self.call(self.path)
        except self.expected as error:
            return error


class DeviceReads(Struct, Generic[R], frozen=True):
    """The items of one device, read one after another; `name` is the device's."""

    name: str
    items: Sequence[ReadItem[R]]


class UnansweredRead(Struct, frozen=True):
    """An item that did not answer in this round, or was not asked, and why."""

    reason: Reason
    detail: str


_PENDING: Any = object()


class _DeviceRound:
    """One leg in one round."""

    __slots__ = ("cursor", "found", "leg", "readers", "settled", "skipped", "took")

    def __init__(self, leg: DeviceReads[Any]) -> None:
        self.leg = leg
        self.cursor = iter(range(len(leg.items)))
        """Shared by the leg's readers: each takes the next item from it, in one step of the interpreter."""
        self.found: list[Any] = [_PENDING] * len(leg.items)
        self.skipped: frozenset[str] = frozenset()
        """Items that have been hanging since an earlier round."""
        self.readers = 0
        self.took = 0.0
        self.settled = False


class _ReaderThread:
    """A thread that reads, and where it is. `left` is set when a round goes on without it."""

    __slots__ = ("at", "left", "path", "seen", "still", "walk")

    def __init__(self) -> None:
        self.walk: _DeviceRound | None = None
        self.at = -1
        self.left = False
        self.path = ""
        self.seen: tuple[_DeviceRound | None, int] | None = None
        self.still = 0.0


class _ReadRound:
    """The state of one round, shared by all readers."""

    __slots__ = ("left", "over", "readers", "troubled", "waiting", "walks")

    def __init__(self, legs: Sequence[DeviceReads[Any]]) -> None:
        self.walks = [_DeviceRound(leg) for leg in legs]
        self.waiting = deque(self.walks)
        self.left = len(self.walks)
        self.readers: list[_ReaderThread] = []
        self.troubled = False
        self.over = threading.Event()

    def settle(self, walk: _DeviceRound) -> None:
        if not walk.settled:
            walk.settled = True
            self.left -= 1
            if not self.left:
                self.over.set()


class FileReaderPool:
    """The readers of one backend. `timeout` is in seconds, `readers` the most threads that it may have."""

    def __init__(self, name: str, timeout: float = PATIENCE_SECONDS, readers: int = READERS) -> None:
        self._name = name
        self._timeout = timeout
        self._most = readers
        self._lock = threading.Lock()
        self._orders: SimpleQueue[tuple[_ReadRound, _ReaderThread] | None] = SimpleQueue()
        self._threads = 0
        self._spare = False
        """Whether one of the threads is waiting for the next round."""
        self._closed = False
        self._hanging: dict[str, dict[str, float]] = {}
        """For each leg, the items that were left to their readers, and since when, in monotonic seconds."""
        self._shortage = UnansweredRead(Reason.TIMEOUT, "not read")
        self._told: set[str] = set()
        self._defects: set[tuple[str, type[BaseException]]] = set()

    def round(self, legs: Sequence[DeviceReads[R]], mono: float) -> list[list[R | UnansweredRead]]:
        """Return the answer of each item of each leg, in their order. Called by one thread, at `mono` on the monotonic
        clock.

        Returns when every item has answered or has used up its timeout.
        """
        work = _ReadRound(legs)
        with self._lock:
            self._closed = False
            if self._hanging:
                self._spare_hanging(work)
            if work.waiting and not self._send(work):
                self._give_up(work)
        while work.left and not work.over.wait(QUICK_SECONDS):
            with self._lock:
                self._look(work, mono)
        if work.troubled:
            answers = [self._explained(walk, mono) for walk in work.walks]
        else:
            answers = [walk.found for walk in work.walks]
        if self._told:
            self._tell_cured(legs, answers)
        return answers

    def read(self, item: ReadItem[R], mono: float, device: str = "") -> R | UnansweredRead:
        """Return the answer of one item, of a device or of one that is known by the item's path."""
        ((answer,),) = self.round([DeviceReads(device or item.path, [item])], mono)
        return answer

    def holds(self, leg: str, path: str) -> bool:
        """Return whether a reader hangs in this item: then nothing else may touch what belongs to it."""
        return path in self._hanging.get(leg, ())

    def close(self) -> None:
        """End the thread that waits. A later round starts another one; those that hang end when they can."""
        with self._lock:
            self._closed = True
            if self._spare:
                self._spare = False
                self._orders.put(None)

    # The caller's side. All of it is under the lock.

    def _spare_hanging(self, work: _ReadRound) -> None:
        """Skip items that hang, and whole devices that already occupy as many readers as they may."""
        for walk in work.walks:
            hanging = self._hanging.get(walk.leg.name)
            if hanging:
                walk.skipped = frozenset(hanging)
                work.troubled = True
                if len(hanging) >= PER_DEVICE:
                    work.waiting.remove(walk)
                    work.settle(walk)

    def _send(self, work: _ReadRound) -> bool:
        """Start another reader on the round. Return False if all allowed readers hang or a thread cannot be started."""
        reader = _ReaderThread()
        if self._spare:
            self._spare = False
            self._orders.put((work, reader))
        elif self._threads >= self._most:
            self._shortage = UnansweredRead(Reason.TIMEOUT, f"not read: {self._threads} reads hang, which is the limit")
            return False
        else:
            thread = threading.Thread(target=self._run, args=(work, reader), name=f"{self._name}-reader", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                detail = f"not read: {error}; raise TasksMax in the unit, or the user's process limit"
                self._shortage = UnansweredRead(Reason.DENIED, detail)
                return False
            self._threads += 1
        work.readers.append(reader)
        return True

    def _look(self, work: _ReadRound, mono: float) -> None:
        """Find readers that make no progress: those that are twice at the same place."""
        moving = False
        for reader in tuple(work.readers):
            place = (reader.walk, reader.at)
            if place != reader.seen:
                reader.seen, reader.still, moving = place, 0.0, True
            else:
                reader.still += QUICK_SECONDS
            walk = reader.walk
            if walk is not None:
                walk.took += QUICK_SECONDS
                if reader.still >= self._timeout or walk.took >= LONGEST * self._timeout:
                    self._leave(work, reader, walk, mono)
        if work.waiting and not moving and not self._send(work) and not work.readers:
            self._give_up(work)

    def _leave(self, work: _ReadRound, reader: _ReaderThread, walk: _DeviceRound, mono: float) -> None:
        """Go on without this reader; another one may read on behind it."""
        reader.left = True  # set before looking where it is: after this it starts no other read
        reader.path = walk.leg.items[reader.at].path
        hanging = self._hanging.setdefault(walk.leg.name, {})
        hanging[reader.path] = mono
        work.readers.remove(reader)
        work.troubled = True
        walk.readers -= 1
        if reader.still >= self._timeout:
            self._tell("a read hangs; continuing without it", reader.path)
        else:
            self._tell("reads are slow; skipping the remaining ones", walk.leg.name)
        if walk.settled:
            return
        more = reader.at + 1 < len(walk.leg.items) and walk.took < LONGEST * self._timeout
        if more and len(hanging) < PER_DEVICE and self._threads < (1 - FIRST) * self._most:
            work.waiting.append(walk)
        elif not walk.readers:
            work.settle(walk)

    def _give_up(self, work: _ReadRound) -> None:
        work.troubled = True
        while work.waiting:
            work.settle(work.waiting.popleft())

    def _explained(self, walk: _DeviceRound, mono: float) -> list[Any]:
        """Return the leg's answers, with the reason in place of each one that is missing."""
        with self._lock:
            hanging = dict(self._hanging.get(walk.leg.name, ()))
        found = list(walk.found)
        for index, item in enumerate(walk.leg.items):
            if found[index] is _PENDING:
                found[index] = self._unread(walk, hanging, item.path, mono)
        return found

    def _unread(self, walk: _DeviceRound, hanging: dict[str, float], path: str, mono: float) -> UnansweredRead:
        if path in hanging:
            waited = max(mono - hanging[path], self._timeout)
            return UnansweredRead(Reason.TIMEOUT, f"no answer for {waited:.{int(waited < 10)}f} s")
        if hanging:
            return UnansweredRead(Reason.TIMEOUT, f"not read because {next(iter(hanging))} does not answer")
        if walk.took >= LONGEST * self._timeout:
            return UnansweredRead(
                Reason.TIMEOUT, f"not read: {walk.leg.name} took longer than {LONGEST * self._timeout:g} s"
            )
        return self._shortage

    def _tell(self, what: str, path: str) -> None:
        if path not in self._told and len(self._told) < TOLD:
            self._told.add(path)
            log.warning(what, extra={"facts": self._facts(path)})

    def _tell_cured(self, legs: Sequence[DeviceReads[Any]], answers: list[list[Any]]) -> None:
        """Log each item that hung and each device that was slow once it has answered in a round again."""
        for leg, found in zip(legs, answers, strict=True):
            well = [
                item.path for item, each in zip(leg.items, found, strict=True) if not isinstance(each, UnansweredRead)
            ]
            cured = self._told.intersection(well)
            if len(well) == len(found):
                cured |= self._told & {leg.name}
            self._told -= cured
            for path in cured:
                log.info("file reads recovered", extra={"facts": self._facts(path)})

    def _facts(self, path: str) -> dict[str, str]:
        return {"backend": self._name, "path": path}

    # The readers' side.

    def _run(self, work: _ReadRound, reader: _ReaderThread) -> None:
        while True:
            self._read_legs(work, reader)
            with self._lock:
                if self._spare or self._closed:
                    self._threads -= 1
                    return
                self._spare = True
            order = self._orders.get()
            if order is None:
                break
            work, reader = order
        with self._lock:
            self._threads -= 1

    def _read_legs(self, work: _ReadRound, reader: _ReaderThread) -> None:
        while True:
            with self._lock:
                if not work.waiting:
                    if reader in work.readers:
                        work.readers.remove(reader)
                    return
                walk = work.waiting.popleft()
                walk.readers += 1
                reader.at, reader.walk = 0, walk
            self._read_items(reader, walk)
            with self._lock:
                reader.walk = None
                if reader.left:
                    self._free(walk.leg.name, reader.path)
                    return
                walk.readers -= 1
                if not walk.readers:
                    work.settle(walk)

    def _read_items(self, reader: _ReaderThread, walk: _DeviceRound) -> None:
        items, found, skipped = walk.leg.items, walk.found, walk.skipped
        for index in walk.cursor:
            reader.at = index
            if reader.left:
                return
            item = items[index]
            if skipped and item.path in skipped:
                continue
            try:
                found[index] = item.read()
            except BaseException as error:  # one that ended this thread would leave its device unread until a restart
                found[index] = self._defect(item.path, error)
            if reader.left:
                return

    def _free(self, name: str, path: str) -> None:
        hanging = self._hanging.get(name, {})
        hanging.pop(path, None)
        if not hanging:
            self._hanging.pop(name, None)

    def _defect(self, path: str, error: BaseException) -> UnansweredRead:
        """Log an unexpected error once in full; it affects only its own item. Never raises."""
        detail = type(error).__name__
        with contextlib.suppress(Exception):  # the error may have no text, or there is no memory left to log it
            detail = f"{detail}: {error}"
        with contextlib.suppress(Exception):
            with self._lock:
                fresh = (path, type(error)) not in self._defects and len(self._defects) < TOLD
                if fresh:
                    self._defects.add((path, type(error)))
            if fresh:
                log.error("reading failed", extra={"facts": self._facts(path)}, exc_info=error)
        return UnansweredRead(Reason.MALFORMED, detail)
