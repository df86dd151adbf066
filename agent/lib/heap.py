"""How the C library keeps the memory of a process that runs for months."""

from __future__ import annotations

MMAP_THRESHOLD, TRIM_THRESHOLD, ARENA_MAX = -3, -1, -8
"""Numbers of mallopt(3), as glibc's malloc.h has them."""
LARGE = 128 * 1024


def settle_heap() -> None:
    """Give large buffers back when they are freed, and keep one heap for all threads; call it before there are any.

    glibc raises the size from which a buffer is mapped by itself with each such buffer that is freed, up to 32 MiB.
    From then on what is written every few seconds lies on the heap, between things that stay, which leaves holes. And
    it gives threads heaps of their own, although Python runs one at a time. Does nothing with another C library.
    """
    try:
        from ctypes import CDLL

        mallopt = CDLL(None).mallopt
    except (ImportError, OSError, AttributeError, MemoryError):
        return
    for option, value in ((ARENA_MAX, 1), (MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE)):
        mallopt(option, value)
