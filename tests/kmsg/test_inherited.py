"""systemd opens the kernel log and hands it over, so that the agent needs no capability to read it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent.backends.kmsg import DeviceReader, KmsgBackend, inherited
from agent.model import Instant, Lane


def test_an_ordinary_file_and_a_closed_descriptor_are_not_the_kernel_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open() as file:
        assert not inherited(file.fileno())
    assert not inherited(99)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg is not open to this user")
def test_the_kernel_log_is_followed_through_a_descriptor_from_its_end() -> None:
    descriptor = os.open("/dev/kmsg", os.O_RDONLY)
    try:
        assert inherited(descriptor)
        backend = KmsgBackend("standard input", lambda path: DeviceReader(path, descriptor))
        now = Instant(time.monotonic(), time.time())
        assert not backend.read(Lane.FAST, now).events
        Path("/dev/kmsg").write_text("NVRM: Xid (PCI:0000:1b:00): 79, drill\n")
        events = backend.read(Lane.FAST, Instant(time.monotonic(), time.time())).events
        assert [(event.device, event.code) for event in events] == [("0000:1b:00", 79)]
        backend.close()
    finally:
        os.close(descriptor)
