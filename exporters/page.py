"""Caches finished pages for as long as they are valid, so that most responses are a copy of bytes.

A page is rendered, and compressed, once for its content, and only on request. One that contains an
age is rendered again after a second even if nothing else has changed: while the sampler is stuck, the sample
age on the page must grow.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from agent.model import Snapshot

LIFETIME_SECONDS = 1.0
"""Seconds for which a page that shows an age may be served again: the error of that age."""

_UNUSED_SECONDS = 10.0
"""Seconds after which a page that was not requested again is dropped."""

_MOST = 4
_MOST_BYTES = 8 * 1024 * 1024
"""Most pages of one kind that are kept, such as selections of rules, and most bytes of them; the last one always is."""

_FAST = 1
"""gzip's level: nine times as fast as level 9 for a page a fifth larger."""

_GZIP_WINDOW = 31
"""zlib's code for the largest window, in a gzip frame (whose time stamp zlib leaves at 0)."""

_BITE = 64 * 1024
"""Bytes that are compressed without a break: about half a millisecond."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A page that can be rendered.

    It is valid while the objects of `basis` are the same ones, and, if it shows an age, for LIFETIME_SECONDS. `pieces`
    renders it, piece by piece, for a moment of the clock. An urgent one is rendered before all others.
    """

    kind: str
    detail: Hashable
    basis: tuple[object, ...]
    pieces: Callable[[float], Iterable[bytes]]
    tells_age: bool = True
    urgent: bool = False

    def same(self, other: Rendering) -> bool:
        """Whether both show the same objects. Equal ones would do, but comparing them takes time."""
        return (
            (self.kind, self.detail) == (other.kind, other.detail)
            and len(self.basis) == len(other.basis)
            and all(map(operator.is_, self.basis, other.basis))
        )


@dataclass(slots=True)
class Page:
    """A finished page. `made` and `used` are moments; it is compressed when that is first requested."""

    rendering: Rendering
    plain: bytes
    made: float
    used: float
    packed: bytes | None = field(default=None)

    @property
    def size(self) -> int:
        return len(self.plain) + len(self.packed or b"")


class PageCache:
    """The pages that are kept. `now` is always the same clock, in seconds."""

    def __init__(self) -> None:
        self._shelves: dict[str, dict[Hashable, Page]] = {}

    def find(self, rendering: Rendering, now: float) -> Page | None:
        """The page, if it is cached and still valid."""
        shelf = self._shelves.get(rendering.kind, {})
        page = shelf.get(rendering.detail)
        if page is None or not page.rendering.same(rendering) or _too_old(page, now):
            return None
        page.used = now
        shelf[rendering.detail] = shelf.pop(rendering.detail)  # the most recently used one comes last
        return page

    def keep(self, rendering: Rendering, plain: bytes, made: float) -> Page:
        """Store a page that has just been rendered in place of the one before it."""
        shelf = self._shelves.setdefault(rendering.kind, {})
        shelf.pop(rendering.detail, None)
        page = shelf[rendering.detail] = Page(rendering, plain, made, made)
        while len(shelf) > 1 and (len(shelf) > _MOST or sum(each.size for each in shelf.values()) > _MOST_BYTES):
            del shelf[next(iter(shelf))]
        return page

    def drop_old(self, now: float) -> bool:
        """Drop what will not be served again, and what is not requested; returns whether any page is left."""
        for shelf in self._shelves.values():
            for detail in [
                each for each, page in shelf.items() if _too_old(page, now) or now - page.used > _UNUSED_SECONDS
            ]:
                del shelf[detail]
        return any(self._shelves.values())


def _too_old(page: Page, now: float) -> bool:
    return page.rendering.tells_age and now - page.made > LIFETIME_SECONDS


def age_of(snapshot: Snapshot, now: float) -> float:
    """Seconds since the snapshot was taken, to the millisecond: the page is not fresher than that."""
    return round(max(0.0, now - snapshot.at.mono), 3)


def compress(page: bytes) -> bytes:
    """gzip, the same bytes for the same page."""
    return b"".join(compressed(page))


def compressed(page: bytes) -> Iterator[bytes]:
    """The same, piece by piece."""
    packer = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP_WINDOW)
    view = memoryview(page)
    for start in range(0, len(page), _BITE):
        yield packer.compress(view[start : start + _BITE])
    yield packer.flush()
