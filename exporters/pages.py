"""Pages: each is rendered whole when it is first asked for, and cached while what it shows is the same.

Rendering takes 2 ms for the page of a node with 8 GPUs, in the server's thread; the server charges it to the client
that asked (`Connection.cost`), so that clients that ask for much wait for those that ask for little. A page that
contains an age is rendered again after a second even if nothing else has changed: while the sampler is stuck, the
sample age on the page must grow.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Hashable
from http import HTTPStatus

from msgspec import Struct

from agent.model import Snapshot
from exporters.http_messages import Request, Response
from exporters.negotiation import accepts_gzip

LIFETIME_SECONDS = 1.0
"""Seconds for which a page that shows an age may be served again: the error of that age."""

AGELESS_SECONDS = 15.0
"""The same for one that does not: it is kept in memory for so long, and rules are rarely evaluated more often."""

_MAX_PAGES = 4
_MAX_BYTES = 8 * 1024 * 1024
"""Most pages of one kind that are kept, such as selections of rules, and most bytes of them; the last one always is."""

_FAST = 1
"""gzip's level: nine times as fast as level 9 for a page a fifth larger."""

_GZIP_WINDOW = 31
"""zlib's code for the largest window, in a gzip frame (whose time stamp zlib leaves at 0)."""


class PageSource(Struct, frozen=True):
    """What a page is rendered from.

    A page is valid while the objects of `basis` are the same ones, for `lifetime` seconds at most. `render` returns it
    for a moment of the clock; `media` is its type.
    """

    kind: str
    detail: Hashable
    basis: tuple[object, ...]
    render: Callable[[float], bytes]
    media: str
    headers: tuple[tuple[str, str], ...] = (("Vary", "Accept-Encoding"),)
    lifetime: float = LIFETIME_SECONDS

    @property
    def key(self) -> tuple[str, Hashable]:
        """The page, whatever it shows."""
        return self.kind, self.detail

    def response(self, body: bytes, gzipped: bool) -> Response:
        """Return the page's bytes as an answer."""
        headers = (*self.headers, ("Content-Encoding", "gzip")) if gzipped else self.headers
        return Response(HTTPStatus.OK, body, self.media, headers)

    def shows_same(self, other: PageSource) -> bool:
        """Return whether both show the same objects. Equal ones would do, but comparing them takes time."""
        return (
            self.key == other.key
            and len(self.basis) == len(other.basis)
            and all(map(operator.is_, self.basis, other.basis))
        )


class Page(Struct):
    """A rendered page, and when it was rendered; it is compressed when that is first requested."""

    source: PageSource
    plain: bytes
    rendered_at: float
    packed: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.plain) + len(self.packed or b"")

    def is_expired(self, now: float) -> bool:
        return now - self.rendered_at > self.source.lifetime


class PageCache:
    """The pages that are kept, the oldest first. For the server's thread only; `clock` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pages: dict[tuple[str, Hashable], Page] = {}

    def get(self, source: PageSource, request: Request) -> Response:
        """Return the page, compressed if the client accepts gzip."""
        now = self._clock()
        page = self._pages.get(source.key)
        if page is None or page.is_expired(now) or not page.source.shows_same(source):
            page = self._store(Page(source, source.render(now), now))
        if not accepts_gzip(request.headers.get("accept-encoding", "")):
            return source.response(page.plain, gzipped=False)
        if page.packed is None:
            page.packed = compress(page.plain)
        return source.response(page.packed, gzipped=True)

    def _store(self, page: Page) -> Page:
        """Store a page that has just been rendered in place of the one before it, and drop what has expired."""
        key, kind = page.source.key, page.source.kind
        self._pages = {
            other: kept for other, kept in self._pages.items() if other != key and not kept.is_expired(page.rendered_at)
        }
        self._pages[key] = page
        alike = [kept for kept in self._pages.values() if kept.source.kind == kind]
        while len(alike) > 1 and (len(alike) > _MAX_PAGES or sum(kept.size for kept in alike) > _MAX_BYTES):
            del self._pages[alike.pop(0).source.key]
        return page


def age_of(snapshot: Snapshot, now: float) -> float:
    """Return seconds since the snapshot was taken, to the millisecond: the page is not fresher than that."""
    return round(max(0.0, now - snapshot.at.mono), 3)


def compress(page: bytes) -> bytes:
    """Return a page in gzip: the same bytes for the same page."""
    packer = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(page) + packer.flush()
