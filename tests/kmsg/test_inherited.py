"""systemd opens the kernel log and hands it over, so that the agent needs no capability to read it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from agent.backends.kmsg import KmsgBackend, KmsgReader, is_inherited_kmsg
from agent.model import Instant, Lane

BOOT = 1_700_000_000.0


def test_an_ordinary_file_and_a_closed_descriptor_are_not_the_kernel_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open() as file:
        assert not is_inherited_kmsg(file.fileno())
    assert not is_inherited_kmsg(99)


def test_the_kernel_log_is_known_by_its_descriptor(kernel_log: int) -> None:
    assert is_inherited_kmsg(kernel_log)
    backend = KmsgBackend("standard input", lambda path: KmsgReader(path, kernel_log))
    assert not backend.read(Lane.FAST, Instant(time.monotonic(), time.time())).gaps
    backend.close()
    os.fstat(kernel_log)  # it is systemd's to close


def test_a_log_is_followed_through_a_descriptor_from_its_end(tmp_path: Path) -> None:
    """Through a file: a drill in the kernel's own log would be taken for real by whoever else reads it."""
    path = tmp_path / "log"
    path.write_text("4,1,1000000,-;NVRM: Xid (PCI:0000:1b:00): 48, of last week\n")
    with path.open("rb") as file:
        backend = KmsgBackend("standard input", lambda path: KmsgReader(path, file.fileno()))
        assert not backend.read(Lane.FAST, Instant(2.0, BOOT)).events
        with path.open("a") as log:
            log.write("4,2,3000000,-;NVRM: Xid (PCI:0000:1b:00): 79, of today\n")
        events = backend.read(Lane.FAST, Instant(4.0, BOOT)).events
        assert [(event.device, event.code) for event in events] == [("0000:1b:00", 79)]
        backend.close()
