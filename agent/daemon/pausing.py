"""Release the driver for a while: it can be unloaded, or a GPU be reset, while everything else is served.

`coldplate pause` leaves a request in the state directory and waits for the answer, which the daemon writes beside it.
A request ends at the time it names, with the boot in which it was made, and `LONGEST_SECONDS` after it was seen.

Without a request the driver is released for a GPU that the kernel is taking away from it: a program that unbinds a GPU
hangs until no process has it open any more. The driver says in the kernel log that it waits, once for each attempt.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from agent.lib import textfile
from agent.lib.logs import LogOnce
from agent.lib.state_files import replace_file
from agent.lib.threads import Threads
from agent.lib.wording import utc
from agent.model import Instant

log = logging.getLogger("coldplate.pause")

_Said = TypeVar("_Said", bound=msgspec.Struct)

RELEASE_SECONDS = 60.0
"""Most seconds for which the driver is released for one attempt."""
SHORTEST_SECONDS = 10.0
"""Fewest of them: what removes a GPU often has more to do, such as binding another driver."""
QUIET_SECONDS = 300.0
"""Seconds in which further attempts on the same GPU change nothing: a loop must not blind the agent."""
GPUS = "driver/nvidia/gpus"
"""The folder of procfs that has an entry for each GPU of the driver, which goes once no process has it open."""


class _Removal(NamedTuple):
    """An attempt. `entry` is what goes with the GPU; None where it was not there, as in some containers."""

    slot: str
    at: Instant
    entry: Path | None


class GpuRemovals:
    """Knows until when the driver is to be released for GPUs that are being removed. For any thread."""

    def __init__(self, procfs: Path, clock: Callable[[], Instant]) -> None:
        self._gpus = procfs / GPUS
        self._clock = clock
        self._lock = threading.Lock()
        self._going: dict[str, _Removal] = {}
        self._seen_at: dict[str, float] = {}
        """When the last attempt on each GPU that counted was seen, in monotonic seconds."""

    def announce(self, slot: str) -> None:
        """Take note that the kernel waits to remove the GPU at this PCI address."""
        now = self._clock()
        with self._lock:
            if now.mono - self._seen_at.get(slot, -QUIET_SECONDS) < QUIET_SECONDS:
                log.warning("GPU %s is being removed, again: the driver is not released a second time", slot)
                return
            self._seen_at = {
                removal_key: at for removal_key, at in self._seen_at.items() if now.mono - at < QUIET_SECONDS
            }
            self._seen_at[slot] = now.mono
            entry = self._gpus / slot
            self._going[slot] = _Removal(slot, now, entry if entry.exists() else None)
        log.warning(
            "GPU %s is being removed, and the kernel waits for its users: releasing the driver for at most %.0f s",
            slot,
            RELEASE_SECONDS,
        )

    @property
    def current(self) -> tuple[float, str] | None:
        """Until when the driver is released at most, in seconds since the epoch, and for which GPU; or None."""
        if not self._going:  # the usual case, at each tick
            return None
        now = self._clock()
        with self._lock:
            for slot, removal in list(self._going.items()):
                passed = now.mono - removal.at.mono
                is_over = removal.entry is not None and not removal.entry.exists()
                if passed >= RELEASE_SECONDS or (is_over and passed >= SHORTEST_SECONDS):
                    del self._going[slot]
                    log.info("GPU %s %s", slot, "has been removed" if is_over else "is not released any longer")
            last = max(self._going.values(), key=lambda removal: removal.at.mono, default=None)
        return None if last is None else (last.at.wall + RELEASE_SECONDS, last.slot)


REQUEST, ANSWER = "pause.request", "pause.answer"
"""Names of files in the state directory."""
LONGEST_SECONDS = 86_400.0
LOOK_SECONDS = 2.0
BOOT_ID = "sys/kernel/random/boot_id"
"""The file of procfs with the id of this boot."""
_MOST = 4096
_LAST = 253_402_300_799.0
"""The last second that has a date: of the year 9999."""


class PauseError(ValueError):
    """A file that is neither a request nor an answer; the text says why."""


class PauseRequest(msgspec.Struct, frozen=True):
    """`until` is in seconds since the epoch."""

    until: Annotated[float, msgspec.Meta(ge=0.0, le=_LAST)]
    boot: str


class PauseAnswer(msgspec.Struct, frozen=True):
    """What the daemon has done for the request of this `until`; `pid` is the worker that still holds the driver."""

    until: float
    pid: int | None = None


def write_request(folder: Path, request: PauseRequest) -> None:
    """Ask the daemon whose state directory this is. Raises OSError."""
    replace_file(folder / REQUEST, msgspec.json.encode(request))


def withdraw_request(folder: Path) -> None:
    """Ask no longer. Raises OSError."""
    (folder / REQUEST).unlink(missing_ok=True)


def read_request(folder: Path) -> PauseRequest | None:
    """Return the request, None without one. Raises PauseError and OSError."""
    if not (folder / REQUEST).exists():  # the usual case
        return None
    return _read(folder / REQUEST, PauseRequest, "a request of coldplate pause")


def read_answer(folder: Path) -> PauseAnswer | None:
    """Return the daemon's answer, None without one. Raises PauseError and OSError."""
    return _read(folder / ANSWER, PauseAnswer, "an answer to coldplate pause")


def boot_of(procfs: Path) -> str:
    """Return what names this boot; empty where procfs does not say."""
    with suppress(OSError, ValueError):
        return textfile.read_text(procfs / BOOT_ID, _MOST).strip()
    return ""


class PauseWatch:
    """Knows until when the driver is to be released. `folder` is the state directory; without it no request can arrive.

    `removals` knows of GPUs for which the agent releases the driver without a request.
    """

    def __init__(
        self, folder: Path | None, boot: str, clock: Callable[[], Instant], threads: Threads, removals: GpuRemovals
    ) -> None:
        self.removals = removals
        self._folder = folder
        self._boot = boot
        self._clock = clock
        self._taken: PauseRequest | None = None
        self._ends_at = 0.0
        """Monotonic seconds: a wall clock that is set does not stretch a pause that has begun."""
        self._done: PauseAnswer | None = None
        self._answered: PauseAnswer | None = PauseAnswer(0.0)
        """What stands in the state directory; at first perhaps the answer of an earlier run."""
        self._once = LogOnce(log)
        self._nap = threading.Event()
        if folder is not None:
            self.check_request()  # a daemon that is restarted in the middle of a pause must not touch the driver
            threads.begin("pause", self._run)

    @property
    def current(self) -> tuple[float, str] | None:
        """The end of the pause, in seconds since the epoch, and what it is for; None without one. For any thread."""
        request = self._asked_until
        if request is not None:
            return request, "coldplate pause has released the driver"
        removal = self.removals.current
        return None if removal is None else (removal[0], f"the driver is released so that GPU {removal[1]} can go")

    @property
    def _asked_until(self) -> float | None:
        request = self._taken
        return None if request is None or self._clock().mono >= self._ends_at else request.until

    def confirm(self, answer: PauseAnswer) -> None:
        """Note how far the pause has come. For any thread."""
        self._done = answer

    def check_request(self) -> None:
        """See what is asked, and answer."""
        assert self._folder is not None
        try:
            self._apply_request(read_request(self._folder))
            self._answer(self._folder)
        except (OSError, PauseError) as error:
            problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            self._once.problem("pause", "coldplate pause cannot be served: %s", problem, cause=problem)
        else:
            self._once.over("pause")

    def _apply_request(self, request: PauseRequest | None) -> None:
        now = self._clock()
        if request is not None and (request.boot != self._boot or now.wall >= request.until):
            request = None
        if request == self._taken:
            return
        if request is None:
            log.info("the pause has ended: reopening the devices")
        else:
            seconds = min(request.until - now.wall, LONGEST_SECONDS)
            self._ends_at = now.mono + seconds
            log.info("releasing the driver on request until %s", utc(now.wall + seconds))
        self._taken = request

    def _answer(self, folder: Path) -> None:
        until, answer = self._asked_until, self._done
        if until is None and self._answered is not None:
            (folder / ANSWER).unlink(missing_ok=True)
            self._answered = None
        elif until is not None and answer is not None and answer.until == until and answer != self._answered:
            replace_file(folder / ANSWER, msgspec.json.encode(answer))
            self._answered = answer

    def _run(self) -> None:
        while True:
            self.check_request()
            self._nap.wait(LOOK_SECONDS)


def _read(path: Path, kind: type[_Said], subject: str) -> _Said | None:
    try:
        return msgspec.json.decode(textfile.read_text(path, _MOST), type=kind)
    except textfile.ReadError as error:
        if error.missing:
            return None
        raise PauseError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise PauseError(f"{path} is not {subject}: {error}") from error
