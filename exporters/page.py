"""Keeps the finished pages of the last snapshot, so that a scrape is a copy of bytes.

A page is rendered, and compressed, once for each snapshot and format, and only when somebody asks for
it. It is made anew after a second even for the same snapshot: when the sampler stands still, the
sample age on the page must be seen to grow.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable

from agent.model import Snapshot
from exporters.encoder import Encoder, Format

LIFETIME = 1.0
"""Seconds for which a page may be served again: the error of the sample age that it shows."""

_FAST = 1
"""gzip's level: nine times as fast as level 9 for a page a fifth larger."""

_GZIP_WINDOW = 31
"""zlib's way to say: the largest window, in a gzip frame (whose time stamp zlib leaves at 0)."""


class PageCache:
    """The pages of one snapshot. May be used from several threads."""

    def __init__(self, encoder: Encoder, clock: Callable[[], float]) -> None:
        self._encoder = encoder
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._made: dict[Format, float] = {}
        self._pages: dict[tuple[Format, bool], bytes] = {}

    def get(self, snapshot: Snapshot, fmt: Format, gzipped: bool) -> bytes:
        """The page of that snapshot, compressed or not. `clock` and the snapshot's `mono` are the same clock."""
        with self._lock:
            now = self._clock()
            if snapshot is not self._snapshot:
                self._snapshot = snapshot
                self._made.clear()
                self._pages.clear()
            elif fmt in self._made and now - self._made[fmt] > LIFETIME:
                self._forget(fmt)
            return self._page(snapshot, fmt, gzipped, now)

    def _page(self, snapshot: Snapshot, fmt: Format, gzipped: bool, now: float) -> bytes:
        page = self._pages.get((fmt, gzipped))
        if page is not None:
            return page
        if gzipped:
            page = compress(self._page(snapshot, fmt, False, now))
        else:
            page = self._encoder.render(snapshot, fmt, age_of(snapshot, now))
            self._made[fmt] = now
        self._pages[fmt, gzipped] = page
        return page

    def _forget(self, fmt: Format) -> None:
        del self._made[fmt]
        for gzipped in (False, True):
            self._pages.pop((fmt, gzipped), None)


def age_of(snapshot: Snapshot, now: float) -> float:
    """Seconds since the snapshot was taken, to the millisecond: the page is not fresher than that."""
    return round(max(0.0, now - snapshot.at.mono), 3)


def compress(page: bytes) -> bytes:
    """gzip, the same bytes for the same page."""
    packer = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(page) + packer.flush()
