"""Reads many files with one thread; a file that hangs blocks that thread and nothing else.

A read of sysfs or procfs may hang for a minute or forever: an adapter whose firmware does not answer, a disk that is
gone. So a caller groups its files by device, and one reader thread goes through all devices. When a file blocks it for
longer than `CHECK_SECONDS`, another reader takes over the waiting devices. When that file has not answered within the
caller's timeout, the round continues without it: its reader is abandoned, and another one continues after that file. A
device blocks at most two readers, because one whose firmware hangs answers nothing, and a file never has more than one
read in flight.

While nothing hangs, a round takes one thread and one hand-over between threads, whatever the number of files.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from agent.backends.protocol import DeviceError
from agent.lib.wording import no_answer_for
from agent.model import Reason

log = logging.getLogger("coldplate.backend")

CHECK_SECONDS = 0.03
"""Seconds between two checks of a round's progress; without any, another reader takes over the waiting devices."""
DEFAULT_TIMEOUT_SECONDS = 0.5
"""Seconds after which a reader that makes no progress is abandoned."""
MAX_TIMEOUTS_PER_DEVICE = 3.0
"""How many times the timeout one device may take in a round, however many of its files are slow."""
MAX_READERS_PER_DEVICE = 2
"""Readers that one device may occupy."""
MAX_READERS = 32
"""Threads of one pool, however many devices hang."""
RESERVED_SHARE = 0.25
"""Share of the threads that is no device's second reader: if a dozen adapters hang, the next one is still read."""
MAX_LOGGED = 64
"""Paths that are remembered as already logged."""

R = TypeVar("R")
E = TypeVar("E", bound=Exception)
R_co = TypeVar("R_co", covariant=True)


class ReadItem(Protocol[R_co]):
    """One thing to read, named by its path. Never read by two threads at once."""

    path: str

    def read(self) -> R_co:
        """Return its content; expected errors too are returned, and any exception is logged as a defect."""


class PathRead(Struct, Generic[R]):
    """Reads a path with a function that raises no expected error."""

    path: str
    call: Callable[[str], R]

    def read(self) -> R:
        return self.call(self.path)


class CaughtRead(Struct, Generic[R, E]):
    """Reads a path with a function, and returns an error of the expected type."""

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


class UnansweredError(DeviceError):
    """Stands for the answer of an item that hangs, or was not read in this round; `detail` begins with its path."""


_PENDING: Any = object()


class _DeviceRound:
    """The progress of one device in one round."""

    __slots__ = ("answers", "hanging", "indexes", "is_finished", "readers", "reads", "seconds")

    def __init__(self, reads: DeviceReads[Any]) -> None:
        self.reads = reads
        self.indexes = iter(range(len(reads.items)))
        """The items that no reader has taken yet. Its readers share it: `next` is atomic in the interpreter."""
        self.answers: list[Any] = [_PENDING] * len(reads.items)
        self.hanging: frozenset[str] = frozenset()
        """Paths that have been hanging since an earlier round; they are not read."""
        self.readers = 0
        """The number of threads that read it now."""
        self.seconds = 0.0
        """How long it has been read."""
        self.is_finished = False


class _ReaderThread:
    """The position of one thread in one round, and for how long it has not moved."""

    __slots__ = ("abandoned", "abandoned_path", "device", "index", "last_position", "stalled")

    def __init__(self) -> None:
        self.device: _DeviceRound | None = None
        self.index = -1
        self.abandoned = False
        """Whether the round continues without this thread, which hangs in `abandoned_path`."""
        self.abandoned_path = ""
        self.last_position: tuple[_DeviceRound | None, int] | None = None
        self.stalled = 0.0
        """Seconds at the same position."""


class _ReadRound:
    """The state of one round, shared by all readers."""

    __slots__ = ("devices", "finished", "incomplete", "readers", "unfinished", "waiting")

    def __init__(self, reads: Sequence[DeviceReads[Any]]) -> None:
        self.devices = [_DeviceRound(r) for r in reads]
        self.waiting = deque(self.devices)
        """Devices that need a reader."""
        self.unfinished = len(self.devices)
        self.readers: list[_ReaderThread] = []
        self.incomplete = False
        """Whether answers may be missing."""
        self.finished = threading.Event()

    def finish(self, device: _DeviceRound) -> None:
        if not device.is_finished:
            device.is_finished = True
            self.unfinished -= 1
            if not self.unfinished:
                self.finished.set()


class FileReaderPool:
    """The reader threads of one backend, at most `max_readers`. `timeout` of a read is in seconds."""

    def __init__(self, name: str, timeout: float = DEFAULT_TIMEOUT_SECONDS, max_readers: int = MAX_READERS) -> None:
        self._name = name
        self._timeout = timeout
        self._max_readers = max_readers
        self._lock = threading.Lock()
        self._orders: SimpleQueue[tuple[_ReadRound, _ReaderThread] | None] = SimpleQueue()
        self._threads = 0
        self._has_idle = False
        """Whether a thread waits for the next round; one at most does."""
        self._closed = False
        self._hanging: dict[str, dict[str, float]] = {}
        """By device, the paths in which abandoned readers hang, and since when, in monotonic seconds."""
        self._no_reader = (Reason.TIMEOUT, "not read")
        """Why no reader could be added last."""
        self._logged: set[str] = set()
        self._logged_defects: set[tuple[str, type[BaseException]]] = set()

    def round(self, reads: Sequence[DeviceReads[R]], mono: float) -> list[list[R | UnansweredError]]:
        """Read all items, and return the answers by device and item, in the order of `reads`.

        Returns when every item has answered or has used up its timeout. Call from one thread; `mono` is the current
        monotonic time in seconds.
        """
        work = _ReadRound(reads)
        with self._lock:
            self._closed = False
            if self._hanging:
                self._skip_hanging(work)
            if work.waiting and not self._add_reader(work):
                self._skip_waiting(work)
        while work.unfinished and not work.finished.wait(CHECK_SECONDS):
            with self._lock:
                self._check_progress(work, mono)
        if work.incomplete:
            answers = [self._with_reasons(device, mono) for device in work.devices]
        else:
            answers = [device.answers for device in work.devices]
        if self._logged:
            self._log_recovered(reads, answers)
        return answers

    def read(self, item: ReadItem[R], mono: float, device: str = "") -> R | UnansweredError:
        """Read one item and return its answer; without a `device`, its path stands for one."""
        ((answer,),) = self.round([DeviceReads(device or item.path, [item])], mono)
        return answer

    def read_each(self, items: Sequence[ReadItem[R]], mono: float) -> list[R | UnansweredError]:
        """Read items whose paths each stand for a device, and return their answers in that order."""
        return [answer for (answer,) in self.round([DeviceReads(item.path, [item]) for item in items], mono)]

    def is_hanging(self, device: str, path: str) -> bool:
        """Return True if a reader hangs in this item: then nothing else may touch the item."""
        return path in self._hanging.get(device, ())

    def close(self) -> None:
        """Stop the idle thread. Those that hang stop when their read returns; a later round starts a thread again."""
        with self._lock:
            self._closed = True
            if self._has_idle:
                self._has_idle = False
                self._orders.put(None)

    # The caller's side. All of it is under the lock.

    def _skip_hanging(self, work: _ReadRound) -> None:
        """Mark items that still hang as not to be read, and skip devices that occupy as many readers as they may."""
        for device in work.devices:
            hanging = self._hanging.get(device.reads.name)
            if hanging:
                device.hanging = frozenset(hanging)
                work.incomplete = True
                if len(hanging) >= MAX_READERS_PER_DEVICE:
                    work.waiting.remove(device)
                    work.finish(device)

    def _add_reader(self, work: _ReadRound) -> bool:
        """Add a reader to the round. Return False if all allowed readers hang or a thread cannot be started."""
        reader = _ReaderThread()
        if self._has_idle:
            self._has_idle = False
            self._orders.put((work, reader))
        elif self._threads >= self._max_readers:
            self._no_reader = (Reason.TIMEOUT, f"not read: {self._threads} reads hang, which is the limit")
            return False
        else:
            thread = threading.Thread(target=self._run, args=(work, reader), name=f"{self._name}-reader", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                detail = f"not read: {error}; raise TasksMax in the unit, or the user's process limit"
                self._no_reader = (Reason.DENIED, detail)
                return False
            self._threads += 1
        work.readers.append(reader)
        return True

    def _check_progress(self, work: _ReadRound, mono: float) -> None:
        """Abandon readers that have not moved for the timeout; add one if none has moved and devices wait."""
        moving = False
        for reader in tuple(work.readers):
            position = (reader.device, reader.index)
            if position != reader.last_position:
                reader.last_position, reader.stalled, moving = position, 0.0, True
            else:
                reader.stalled += CHECK_SECONDS
            device = reader.device
            if device is not None:
                device.seconds += CHECK_SECONDS
                if reader.stalled >= self._timeout or device.seconds >= MAX_TIMEOUTS_PER_DEVICE * self._timeout:
                    self._abandon(work, reader, device, mono)
        if work.waiting and not moving and not self._add_reader(work) and not work.readers:
            self._skip_waiting(work)

    def _abandon(self, work: _ReadRound, reader: _ReaderThread, device: _DeviceRound, mono: float) -> None:
        """Continue the round without this reader; another one may read the items after its own."""
        reader.abandoned = True  # before its index is read: from now on it starts no other read
        reader.abandoned_path = device.reads.items[reader.index].path
        hanging = self._hanging.setdefault(device.reads.name, {})
        hanging[reader.abandoned_path] = mono
        work.readers.remove(reader)
        work.incomplete = True
        device.readers -= 1
        if reader.stalled >= self._timeout:
            self._log_once("a read hangs; continuing without it", reader.abandoned_path)
        else:
            self._log_once("reads are slow; skipping the remaining ones", device.reads.name)
        if device.is_finished:
            return
        more = reader.index + 1 < len(device.reads.items) and device.seconds < MAX_TIMEOUTS_PER_DEVICE * self._timeout
        if more and len(hanging) < MAX_READERS_PER_DEVICE and self._threads < (1 - RESERVED_SHARE) * self._max_readers:
            work.waiting.append(device)
        elif not device.readers:
            work.finish(device)

    def _skip_waiting(self, work: _ReadRound) -> None:
        work.incomplete = True
        while work.waiting:
            work.finish(work.waiting.popleft())

    def _with_reasons(self, device: _DeviceRound, mono: float) -> list[Any]:
        """Return the device's answers, with the reason in place of each missing one."""
        with self._lock:
            hanging = dict(self._hanging.get(device.reads.name, ()))
        answers = list(device.answers)
        for index, item in enumerate(device.reads.items):
            if answers[index] is _PENDING:
                reason, problem = self._reason_unanswered(device, hanging, item.path, mono)
                answers[index] = UnansweredError(reason, f"{item.path}: {problem}")
        return answers

    def _reason_unanswered(
        self, device: _DeviceRound, hanging: dict[str, float], path: str, mono: float
    ) -> tuple[Reason, str]:
        if path in hanging:
            return Reason.TIMEOUT, no_answer_for(max(mono - hanging[path], self._timeout))
        if hanging:
            return Reason.TIMEOUT, f"not read because {next(iter(hanging))} does not answer"
        limit = MAX_TIMEOUTS_PER_DEVICE * self._timeout
        if device.seconds >= limit:
            return Reason.TIMEOUT, f"not read: {device.reads.name} took longer than {limit:g} s"
        return self._no_reader

    def _log_once(self, problem: str, path: str) -> None:
        if path not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(path)
            log.warning(problem, extra={"facts": self._facts(path)})

    def _log_recovered(self, reads: Sequence[DeviceReads[Any]], answers: list[list[Any]]) -> None:
        """Log each item that hung and each device that was slow when it has answered in a round again."""
        for device, device_answers in zip(reads, answers, strict=True):
            answered = [
                item.path
                for item, answer in zip(device.items, device_answers, strict=True)
                if not isinstance(answer, UnansweredError)
            ]
            recovered = self._logged.intersection(answered)
            if len(answered) == len(device_answers):
                recovered |= self._logged & {device.name}
            self._logged -= recovered
            for path in recovered:
                log.info("file reads recovered", extra={"facts": self._facts(path)})

    def _facts(self, path: str) -> dict[str, str]:
        return {"backend": self._name, "path": path}

    # The readers' side.

    def _run(self, work: _ReadRound, reader: _ReaderThread) -> None:
        while True:
            self._read_devices(work, reader)
            with self._lock:
                if self._has_idle or self._closed:
                    self._threads -= 1
                    return
                self._has_idle = True
            order = self._orders.get()
            if order is None:
                break
            work, reader = order
        with self._lock:
            self._threads -= 1

    def _read_devices(self, work: _ReadRound, reader: _ReaderThread) -> None:
        while True:
            with self._lock:
                if not work.waiting:
                    if reader in work.readers:
                        work.readers.remove(reader)
                    return
                device = work.waiting.popleft()
                device.readers += 1
                reader.index, reader.device = 0, device
            self._read_items(reader, device)
            with self._lock:
                reader.device = None
                if reader.abandoned:
                    self._forget_hanging(device.reads.name, reader.abandoned_path)
                    return
                device.readers -= 1
                if not device.readers:
                    work.finish(device)

    def _read_items(self, reader: _ReaderThread, device: _DeviceRound) -> None:
        items, answers, hanging = device.reads.items, device.answers, device.hanging
        for index in device.indexes:
            reader.index = index
            if reader.abandoned:
                return
            item = items[index]
            if hanging and item.path in hanging:
                continue
            try:
                answers[index] = item.read()
            except BaseException as error:  # one that ended this thread would leave its device unread until a restart
                answers[index] = self._log_defect(item.path, error)
            if reader.abandoned:
                return

    def _forget_hanging(self, name: str, path: str) -> None:
        hanging = self._hanging.get(name, {})
        hanging.pop(path, None)
        if not hanging:
            self._hanging.pop(name, None)

    def _log_defect(self, path: str, error: BaseException) -> UnansweredError:
        """Log an unexpected error once, and return it as the answer of its item. Never raises."""
        detail = type(error).__name__
        with contextlib.suppress(Exception):  # the error may have no text, or there is no memory left to log it
            detail = f"{detail}: {error}"
        with contextlib.suppress(Exception):
            with self._lock:
                fresh = (path, type(error)) not in self._logged_defects and len(self._logged_defects) < MAX_LOGGED
                if fresh:
                    self._logged_defects.add((path, type(error)))
            if fresh:
                log.error("reading failed", extra={"facts": self._facts(path)}, exc_info=error)
        return UnansweredError(Reason.MALFORMED, f"{path}: {detail}")
