"""Large buffers do not come to lie between things that stay, and no thread gets a heap of its own."""

import ctypes
import platform
import subprocess
import sys

import pytest

from agent.commands.run import settle_heap

FREED, WANTED = 20 << 20, 8 << 20
PROGRAM = f"""
import re, sys
from pathlib import Path
from agent.commands.run import settle_heap

def heap():
    bounds = re.search(r"^([0-9a-f]+)-([0-9a-f]+) .*\\[heap\\]$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return int(bounds[2], 16) - int(bounds[1], 16)

if "settled" in sys.argv:
    settle_heap()
before, large = heap(), bytes({FREED})
del large  # from now on glibc would keep what is smaller on the heap
wanted = bytes({WANTED})
print(heap() - before)
"""


def _growth(*arguments: str) -> int:
    run = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOTHING to see: another C library than glibc")
def test_a_large_buffer_is_never_on_the_heap() -> None:
    assert _growth("settled") < WANTED / 2
    assert _growth() >= 0.9 * WANTED  # a little of it was free on the heap before


@pytest.mark.parametrize("error", [OSError, AttributeError, MemoryError])
def test_another_c_library_is_left_as_it_is(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: object) -> object:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    settle_heap()
