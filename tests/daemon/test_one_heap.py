"""However many threads the daemon has, glibc keeps one heap for all of them."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from tests.daemon.conftest import Start

FURTHER_HEAP = 64 << 20
"""What glibc reserves for each heap but the first, and at a multiple of it."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOTHING to see: another C library than glibc")
def test_threads_have_no_heaps_of_their_own(start: Start) -> None:
    daemon = start("--backend", "synthetic", forked=False)
    daemon.get()
    maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
    begins = [int(each, 16) for each in re.findall(r"^([0-9a-f]+)-\S+ \S+ \S+ 00:00 0\s*$", maps, re.MULTILINE)]
    assert begins
    assert not [each for each in begins if each % FURTHER_HEAP == 0]
