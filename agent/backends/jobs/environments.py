"""What the system may hide or be slow to give about the owner of a process: its environment and its user's name."""

import errno
import pwd
from collections.abc import Callable
from math import inf

from agent.backends.file_reader_pool import FileReaderPool, PathRead
from agent.backends.jobs.job import to_label_value
from agent.backends.jobs.job_files import GONE_ERRNOS, REFUSED, ReadFile, describe_error
from agent.broker.asking import BrokerError, explained

MAX_ENVIRON_BYTES = 256 * 1024
"""Most bytes read of an environment."""
RETRY_SECONDS = 15.0
"""Seconds after which a broker that failed is asked again, and a hidden environment tried again."""

AskVariables = Callable[[int, int], bytes]
"""The job variables of a process, by its number and its start in clock ticks after boot. Raises OSError."""


class EnvironmentUnavailableError(Exception):
    """An environment is not available; the text names the file, the reason and the remedy.

    `late` says that the read did not answer; `retry` is the number of seconds until the next attempt.
    """

    def __init__(self, text: str, *, late: bool = False, retry: float = RETRY_SECONDS) -> None:
        super().__init__(text)
        self.late = late
        self.retry = retry


class ProcessEnvironments:
    """Reads the environments of the processes below `procfs` directly if allowed, else by the broker.

    A broker that is absent, hangs or fails is not asked again for a while: a failed request must not be followed by one
    for each process of the node.
    """

    def __init__(self, procfs: str, read: ReadFile, ask: AskVariables) -> None:
        self._procfs = procfs
        self._read = read
        self._ask = ask
        self._silent_until = -inf
        self._failure: BrokerError | None = None

    def read_variables(self, pid: int, started: int, mono: float) -> bytes:
        """Return the environment, or the job variables in it.

        Raises EnvironmentUnavailableError, and OSError for a process that ended.
        """
        path = f"{self._procfs}/{pid}/environ"
        try:
            return self._read(path, MAX_ENVIRON_BYTES)
        except OSError as error:
            if error.errno in GONE_ERRNOS:
                raise
            problem = describe_error(path, error)
            if error.errno == errno.ETIMEDOUT:
                raise EnvironmentUnavailableError(problem, late=True, retry=0.0) from error
            if error.errno not in REFUSED:
                raise EnvironmentUnavailableError(problem) from error
        if mono < self._silent_until and self._failure is not None:
            raise EnvironmentUnavailableError(f"{problem}; {explained(self._failure)}")
        try:
            return self._ask(pid, started)
        except BrokerError as error:
            self._silent_until, self._failure = mono + RETRY_SECONDS, error
            # The broker may hang because of this very process: let the others come first next time.
            retry = 2 * RETRY_SECONDS if error.errno == errno.ETIMEDOUT else RETRY_SECONDS
            raise EnvironmentUnavailableError(f"{problem}; {explained(error)}", retry=retry) from error
        except OSError as error:
            if error.errno in GONE_ERRNOS:
                raise
            raise EnvironmentUnavailableError(f"{problem}; {explained(error)}") from error


NAME_RETRY_SECONDS = 600.0
"""Seconds after which a user without a name is looked up again."""
MAX_USERS = 4096
NAME_TIMEOUT_SECONDS = 0.5
"""Seconds to wait for a name, once; after that it comes with a later look."""
_UNKNOWN = ("", -inf)


def system_name(uid: int) -> str:
    """Return the name in the system's user database. Raises KeyError if it has none."""
    return pwd.getpwuid(uid).pw_name


class UserNames:
    """Looks up the name of each user once.

    `lookup` returns a user's name or raises KeyError or OSError. It may query a directory server and never return: it
    is waited for briefly, so that a job is rarely shown with its user's number first, and keeps what it finds later.
    """

    def __init__(self, lookup: Callable[[int], str] = system_name, timeout: float = NAME_TIMEOUT_SECONDS) -> None:
        self._lookup = lookup
        self._pool = FileReaderPool("users", timeout)
        self._names: dict[int, tuple[str, float]] = {}
        """By user, the name, and until when it counts, in monotonic seconds."""

    def name(self, uid: int, mono: float) -> str:
        """Return the user's name, or "" if it is not known, or not yet."""
        name, until = self._names.get(uid, _UNKNOWN)
        if mono < until:
            return name
        self._pool.read(PathRead(f"user {uid}", lambda _: self._look_up(uid, mono)), mono, "user database")
        return self._names.get(uid, _UNKNOWN)[0]

    def close(self) -> None:
        self._pool.close()

    def _look_up(self, uid: int, mono: float) -> None:
        try:
            entry = to_label_value(self._lookup(uid)), inf
        except (KeyError, OSError, OverflowError):
            entry = "", mono + NAME_RETRY_SECONDS
        if len(self._names) >= MAX_USERS:
            self._names.clear()
        self._names[uid] = entry
