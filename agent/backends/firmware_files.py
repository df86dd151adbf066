"""Reads files that firmware serves, and leaves those alone that keep failing.

A failed read of such a file costs something each time: an ACPI power meter whose method fails makes the kernel log two
lines (HP ProLiant; netdata issue 827), and an adapter or a module that does not answer holds its driver up.
"""

from collections.abc import Sequence
from math import inf
from typing import TypeVar

from msgspec import Struct

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, UnansweredError
from agent.backends.protocol import DeviceError
from agent.model import Reason

PAUSE_SECONDS = 600.0
MAX_FAILURES = 2
"""After as many failures in a row a file or module is left alone for PAUSE_SECONDS."""

R = TypeVar("R")


class FailurePause(Struct):
    """Counts the failures of one file or module, and says until when it is left alone (monotonic seconds)."""

    failures: int = 0
    end: float = -inf

    def record(self, reason: Reason | None, mono: float) -> None:
        """Record a failed read, or a good one with None. A denied one costs nothing, so it does not count."""
        if reason is None:
            self.failures = 0
            return
        self.failures += reason is not Reason.DENIED
        if self.failures >= MAX_FAILURES:
            self.end = mono + PAUSE_SECONDS


class FailingFile(FailurePause):
    """A file that failed when it was last read, and why."""

    error: DeviceError | None = None


class FirmwareFiles:
    """Reads files through `pool`. A file that is left alone keeps the error of its last read."""

    def __init__(self, pool: FileReaderPool) -> None:
        self._pool = pool
        self._failing: dict[str, FailingFile] = {}

    def round(self, reads: Sequence[DeviceReads[R | DeviceError]], mono: float) -> list[list[R | DeviceError]]:
        """Return the answers by device and item, in the order of `reads`; see `FileReaderPool.round`."""
        due = [
            DeviceReads(device.name, [item for item in device.items if not self._is_paused(item.path, mono)])
            for device in reads
        ]
        reads_due = [device for device in due if device.items]
        hung_before = {
            item.path for device in reads_due for item in device.items if self._pool.is_hanging(device.name, item.path)
        }
        answers: dict[str, R | DeviceError] = {}
        for device, device_answers in zip(reads_due, self._pool.round(reads_due, mono), strict=True):
            for item, answer in zip(device.items, device_answers, strict=True):
                answers[item.path] = answer
                if not isinstance(answer, DeviceError):
                    self._failing.pop(item.path, None)
                elif self._was_read(device.name, item.path, answer) and item.path not in hung_before:
                    self._record_failure(item.path, answer, mono)
        return [[self._answer_of(item.path, answers) for item in device.items] for device in reads]

    def _is_paused(self, path: str, mono: float) -> bool:
        failing = self._failing.get(path)
        return failing is not None and mono < failing.end

    def _was_read(self, device: str, path: str, answer: DeviceError) -> bool:
        """Return False if the pool skipped the file in this round."""
        return not isinstance(answer, UnansweredError) or self._pool.is_hanging(device, path)

    def _record_failure(self, path: str, error: DeviceError, mono: float) -> None:
        failing = self._failing.setdefault(path, FailingFile())
        failing.record(error.reason, mono)
        failing.error = error

    def _answer_of(self, path: str, answers: dict[str, R | DeviceError]) -> R | DeviceError:
        if path in answers:
            return answers[path]
        error = self._failing[path].error
        assert error is not None, "a file is left alone after an error"
        return DeviceError(error.reason, f"{error.detail}; read every {PAUSE_SECONDS:g} s while it fails")
