"""A kernel log that gives one record for each read, as the device does."""

import os
from collections import deque
from collections.abc import Iterator

import pytest

from agent.backends.kmsg import KmsgBackend
from agent.backends.protocol import BackendSample
from agent.model import Instant, Lane

BOOT = 1_700_000_000.0


@pytest.fixture
def kernel_log() -> Iterator[int]:
    """The kernel's own log, open for reading. Not its mode but dmesg_restrict rules who may, at the opening."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY)
    except OSError as error:
        pytest.skip(f"this user may not read the kernel log: {error.strerror}")
    yield descriptor
    os.close(descriptor)


class FakeLog:
    """Records, or errors that a read raises; at the end it would block."""

    def __init__(self) -> None:
        self.queue: deque[bytes | OSError] = deque()
        self.sequence = 0
        self.closed = 0

    def write(self, message: str, at: float = 100.0) -> None:
        """A record of the kernel at `at` seconds since boot."""
        self.sequence += 1
        self.queue.append(f"3,{self.sequence},{round(at * 1e6)},-;{message}\n SUBSYSTEM=pci\n".encode())

    def read(self) -> bytes:
        if not self.queue:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        item = self.queue.popleft()
        if isinstance(item, OSError):
            raise item
        return item

    def skip(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class Follower:
    """A backend on a fake log, read at seconds since boot."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.backend = KmsgBackend("/dev/kmsg", lambda path: self.log)
        self.read(50.0)

    def read(self, mono: float) -> BackendSample:
        return self.backend.read(Lane.FAST, Instant(mono, BOOT + mono))


@pytest.fixture
def follower() -> Follower:
    return Follower()
