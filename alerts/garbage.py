"""Keeps Python's garbage collector from scanning rules, which are many long-lived objects.

5,000 rules consist of a million objects. A collection stops every thread for up to 0.4 s, and there are several
while they are read. When they are replaced they are freed by reference counting, without a collection.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_passes_over_garbage() -> Iterator[None]:
    """For work that makes many lasting objects: they are not scanned for garbage, now or later.

    It applies to the whole process, so the work must be certain to end: it may not wait for files or threads.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_what_is_fresh() -> None:
    """Scan what has been made since rules were last read, which is little: garbage among it would be kept with them."""
    gc.collect()


def collect_what_stayed() -> None:
    """Scan everything once: what other threads dropped just when rules were read is kept until then."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
