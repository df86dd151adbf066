"""The environments of processes: read directly if allowed, else requested from the broker.

A broker that is absent, hangs or fails is not asked again for a while: a failed request must not be
followed by one for each process of the node.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from math import inf

from agent.backends.jobs.job_files import GONE, REFUSED, ReadFile, said
from agent.broker.asking import BrokerError, explained

ENVIRON = 256 * 1024
"""Most bytes read of an environment."""
RETRY_SECONDS = 15.0
"""Seconds after which a broker that failed is asked again, and a hidden environment tried again."""

AskVariables = Callable[[int, int], bytes]
"""The job variables of a process, by its number and its start in clock ticks after boot. Raises OSError."""


class HiddenError(Exception):
    """An environment is not available; the text names the file, the reason and the remedy.

    `late` says that the read did not answer; `retry` is the number of seconds until the next attempt.
    """

    def __init__(self, text: str, *, late: bool = False, retry: float = RETRY_SECONDS) -> None:
        super().__init__(text)
        self.late = late
        self.retry = retry


class Environments:
    """The environments of the processes below `procfs`."""

    def __init__(self, procfs: str, read: ReadFile, ask: AskVariables) -> None:
        self._procfs = procfs
        self._read = read
        self._ask = ask
        self._silent_until = -inf
        self._failure: BrokerError | None = None

    def of(self, pid: int, started: int, mono: float) -> bytes:
        """The environment, or the job variables in it. Raises HiddenError, and OSError for a process that ended."""
        path = f"{self._procfs}/{pid}/environ"
        try:
            return self._read(path, ENVIRON)
        except OSError as error:
            if error.errno in GONE:
                raise
            why = said(path, error)
            if error.errno == errno.ETIMEDOUT:
                raise HiddenError(why, late=True, retry=0.0) from error
            if error.errno not in REFUSED:
                raise HiddenError(why) from error
        if mono < self._silent_until and self._failure is not None:
            raise HiddenError(f"{why}; {explained(self._failure)}")
        try:
            return self._ask(pid, started)
        except BrokerError as error:
            self._silent_until, self._failure = mono + RETRY_SECONDS, error
            # The broker may hang because of this very process: let the others come first next time.
            retry = 2 * RETRY_SECONDS if error.errno == errno.ETIMEDOUT else RETRY_SECONDS
            raise HiddenError(f"{why}; {explained(error)}", retry=retry) from error
        except OSError as error:
            if error.errno in GONE:
                raise
            raise HiddenError(f"{why}; {explained(error)}") from error
