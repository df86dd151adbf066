"""Keeps Python's garbage collector from scanning rules, which are many long-lived objects.

5,000 rules consist of a million objects. A collection stops every thread for up to 0.4 s, and there are several
while they are read and taken up. When they are replaced they are freed by reference counting, without a collection.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_counting = threading.Lock()
_working = 0
"""Threads that make lasting objects: one may read rules while another takes up those that were read before."""


@contextlib.contextmanager
def no_passes_over_garbage() -> Iterator[None]:
    """For work that makes many lasting objects: they are not scanned for garbage, now or later.

    It applies to the whole process, so the work must be certain to end: it may not wait for files or threads.
    """
    _work(1)
    try:
        yield
    finally:
        gc.freeze()
        _work(-1)


def _work(change: int) -> None:
    """Have the collector disabled while anybody works."""
    global _working
    with _counting:
        _working += change
        (gc.disable if _working else gc.enable)()


def collect_what_is_fresh() -> None:
    """Scan what has been made since rules were last read, which is little: garbage among it would be kept with them."""
    gc.collect()


def collect_what_stayed() -> None:
    """Scan everything once: what other threads dropped just when rules were read is kept until then."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
