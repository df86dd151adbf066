"""However many threads the daemon has, glibc keeps one heap for all of them."""

from __future__ import annotations

import platform
import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.daemon.conftest import Start

FURTHER_HEAP = 64 << 20
"""What glibc reserves for each heap but the first, and at a multiple of it."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOTHING to see: another C library than glibc")
def test_threads_have_no_heaps_of_their_own(start: Start) -> None:
    daemon = start("--backend", "synthetic", forked=False)
    daemon.get()
    assert further_heaps(Path(f"/proc/{daemon.process.pid}/maps").read_text()) == []


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("7f5a64021000-7f5a68000000 ---p", ["7f5a64000000"]),  # the rest of its reservation
        ("7f5a64021000-7f5a66000000 ---p", []),  # something of another size, at such an address by chance
        ("7f5a66000000-7f5a68000000 ---p", []),  # not beside it
        ("7f5a64021000-7f5a68000000 rw-p", []),  # used to its end
    ],
)
def test_a_further_heap_is_told_from_what_lies_at_its_address_by_chance(second: str, found: list[str]) -> None:
    maps = f"7f5a64000000-7f5a64021000 rw-p 00000000 00:00 0\n{second} 00000000 00:00 0\n"
    assert further_heaps(maps) == found


def further_heaps(maps: str) -> list[str]:
    """Where the further heaps in ``maps`` begin: used pages, and beside them what is reserved but not used yet."""
    regions = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ 00:00 0\s*$", maps, re.MULTILINE)
    assert regions
    return [
        begin
        for (begin, end, used), (rest, last, reserved) in pairwise(regions)
        if (used, reserved, end) == ("rw-p", "---p", rest)
        if int(begin, 16) % FURTHER_HEAP == 0 and int(last, 16) - int(begin, 16) == FURTHER_HEAP
    ]
