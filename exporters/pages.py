"""Pages: chosen by a client's Accept headers, rendered once for their content, cached, and made in slices.

The page of a node with 20,000 series takes tens of milliseconds, and so do thousands of alerts. A separate thread would
not help: Python runs one at a time. So a page is rendered in slices, in the server's thread, and clients get their
turns after each. A page that contains an age is rendered again after a second even if nothing else has changed: while
the sampler is stuck, the sample age on the page must grow.

OpenMetrics is for clients that name it, in a supported version (RFC 9110, 12.5); all others, including browsers and
scrapers with unusual preferences, get Prometheus text.
"""

from __future__ import annotations

import logging
import operator
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from http import HTTPStatus
from typing import NamedTuple

from msgspec import Struct

from agent.lib.logs import LogOnce
from agent.model import Snapshot
from exporters.deferred import Answer, Deferred
from exporters.encoder import Format
from exporters.http_messages import FAILED, Request, Response

_OPENMETRICS_VERSIONS = frozenset({"", "1.0.0"})
_TEXT_VERSIONS = frozenset({"", "0.0.4", "1.0.0"})  # 1.0.0 only adds quoted names, which coldplate does not use


_MAX_ENTRIES = 32
"""Most items of a header that are examined; a header of commas has room for thousands."""


class _AcceptEntry(NamedTuple):
    value: str
    version: str
    weight: float


def choose_format(accept: str) -> Format:
    """Return the format that the client prefers; OpenMetrics if it accepts both equally."""
    openmetrics = text = 0.0
    specific: int = -1
    for entry in _accept_entries(accept):
        if entry.value == "application/openmetrics-text" and entry.version in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, entry.weight)
        rank = _text_rank(entry)
        if rank > specific:
            specific, text = rank, entry.weight
        elif rank == specific >= 0:
            text = max(text, entry.weight)
    return Format.OPENMETRICS if openmetrics > 0.0 and openmetrics >= text else Format.TEXT


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether gzip may be used: named, or covered by a star, and not with a weight of 0."""
    weights = {entry.value: entry.weight for entry in _accept_entries(accept_encoding)}
    return next((weights[name] > 0.0 for name in ("gzip", "x-gzip", "*") if name in weights), False)


def _text_rank(entry: _AcceptEntry) -> int:
    """Return how specifically an item of Accept means our text format; the most specific decides; -1: not at all."""
    if entry.value == "text/plain" and entry.version in _TEXT_VERSIONS:
        return 2
    return {"text/*": 1, "*/*": 0}.get(entry.value, -1)


def _accept_entries(header: str) -> Iterator[_AcceptEntry]:
    for item in header.split(",", _MAX_ENTRIES)[:_MAX_ENTRIES]:
        value, *parameters = (part.strip() for part in item.split(";", _MAX_ENTRIES)[:_MAX_ENTRIES])
        if not value:
            continue
        pairs = (each.partition("=") for each in parameters)
        named = {name.strip().lower(): text.strip().strip('"') for name, _, text in pairs}
        yield _AcceptEntry(value.lower(), named.get("version", ""), _weight(named.get("q", "1")))


def _weight(text: str) -> float:
    """Return a weight from 0 to 1; a malformed one counts as not given."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0.0 <= weight <= 1.0 else 1.0


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

_BITE = 64 * 1024
"""Bytes that are compressed without a break: about half a millisecond."""


class Rendering(Struct, frozen=True):
    """A page that can be rendered.

    It is valid while the objects of `basis` are the same ones, for `lifetime` seconds at most. `pieces` renders it,
    piece by piece, for a moment of the clock; `media` is its type. An urgent one is rendered before all others.
    """

    kind: str
    detail: Hashable
    basis: tuple[object, ...]
    pieces: Callable[[float], Iterable[bytes]]
    media: str
    headers: tuple[tuple[str, str], ...] = (("Vary", "Accept-Encoding"),)
    lifetime: float = LIFETIME_SECONDS
    urgent: bool = False

    @property
    def key(self) -> tuple[str, Hashable]:
        """The page, whatever it shows."""
        return self.kind, self.detail

    def response(self, body: bytes, gzipped: bool) -> Response:
        """Return the page's bytes as an answer."""
        headers = (*self.headers, ("Content-Encoding", "gzip")) if gzipped else self.headers
        return Response(HTTPStatus.OK, body, self.media, headers)

    def same(self, other: Rendering) -> bool:
        """Return whether both show the same objects. Equal ones would do, but comparing them takes time."""
        return (
            self.key == other.key
            and len(self.basis) == len(other.basis)
            and all(map(operator.is_, self.basis, other.basis))
        )


class Page(Struct):
    """A finished page, and when it was begun; it is compressed when that is first requested."""

    rendering: Rendering
    plain: bytes
    made: float
    packed: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.plain) + len(self.packed or b"")

    def is_expired(self, now: float) -> bool:
        return now - self.made > self.rendering.lifetime


class PageCache:
    """The pages that are kept, the oldest first. `now` is always the same clock, in seconds."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, Hashable], Page] = {}

    def find(self, rendering: Rendering, now: float) -> Page | None:
        """Return the page, if it is cached and still valid."""
        page = self._pages.get(rendering.key)
        return page if page is not None and page.rendering.same(rendering) and not page.is_expired(now) else None

    def keep(self, rendering: Rendering, plain: bytes, made: float) -> Page:
        """Store a page that has just been rendered in place of the one before it."""
        self._pages.pop(rendering.key, None)
        page = self._pages[rendering.key] = Page(rendering, plain, made)
        alike = [each for each in self._pages.values() if each.rendering.kind == rendering.kind]
        while len(alike) > 1 and (len(alike) > _MAX_PAGES or sum(each.size for each in alike) > _MAX_BYTES):
            del self._pages[alike.pop(0).rendering.key]
        return page

    def drop_old(self, now: float) -> None:
        """Drop what will not be served again."""
        self._pages = {key: page for key, page in self._pages.items() if not page.is_expired(now)}


def age_of(snapshot: Snapshot, now: float) -> float:
    """Return seconds since the snapshot was taken, to the millisecond: the page is not fresher than that."""
    return round(max(0.0, now - snapshot.at.mono), 3)


def compressed(page: bytes) -> Iterator[bytes]:
    """Yield a page in gzip, piece by piece; the same bytes for the same page."""
    packer = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP_WINDOW)
    view = memoryview(page)
    for start in range(0, len(page), _BITE):
        yield packer.compress(view[start : start + _BITE])
    yield packer.flush()


logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.002
URGENT_SLICE_SECONDS = 0.010
"""Seconds for which a page is rendered before the clients have their turn."""

_CLEANUP_SECONDS = 1.0
"""Seconds between two clean-ups of the cache."""


class _RenderJob:
    """A page that clients wait for. It has `steps` once its rendering has begun."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self.waiters: list[tuple[bool, Deferred]] = []
        """Whether each client gets the page compressed, and its answer."""
        self.steps: Iterator[None] | None = None

    @property
    def is_needed(self) -> bool:
        return any(not answer.abandoned for _, answer in self.waiters)

    def can_show(self, rendering: Rendering) -> bool:
        """Return whether the page shows the same; one not begun can show it instead of an earlier state."""
        if self.steps is None:
            return self.rendering.key == rendering.key
        return self.rendering.same(rendering)

    def serve(self, gzipped: bool, body: bytes) -> None:
        response = self.rendering.response(body, gzipped)
        for wants_gzip, answer in self.waiters:
            if wants_gzip is gzipped:
                answer.answer(response)
        self.waiters = [waiter for waiter in self.waiters if waiter[0] is not gzipped]


class RenderQueue:
    """Returns cached pages at once, and others when they are rendered. For the server's thread only.

    `work` has to be called again and again; `clock` is in seconds, for the length of a slice.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._cache = PageCache()
        self._cleaned = float("-inf")
        self._clock = clock
        self._urgent: deque[_RenderJob] = deque()
        self._others: deque[_RenderJob] = deque()
        self._once = LogOnce(logger)

    def get(self, rendering: Rendering, request: Request) -> Answer:
        """Return the page now or later, compressed if the client accepts gzip."""
        gzipped = accepts_gzip(request.headers.get("accept-encoding", ""))
        page = self._cache.find(rendering, self._clock())
        body = None if page is None else page.packed if gzipped else page.plain
        if body is not None:
            return rendering.response(body, gzipped)
        later = Deferred()
        jobs = self._urgent if rendering.urgent else self._others
        for each in [each for each in jobs if each.steps is None and not each.is_needed]:
            jobs.remove(each)
        job = next((each for each in jobs if each.can_show(rendering)), None)
        if job is None:
            job = _RenderJob(rendering)
            jobs.append(job)
        if job.steps is None:
            job.rendering = rendering
        job.waiters.append((gzipped, later))
        return later

    def work(self) -> bool:
        """Work for a slice of time; returns whether there is more to do."""
        now = self._clock()
        if now - self._cleaned >= _CLEANUP_SECONDS:
            self._cleaned = now
            self._cache.drop_old(now)
        self._once.ease(now)
        if self._urgent:
            self._advance(self._urgent, now + URGENT_SLICE_SECONDS)
        else:
            self._advance(self._others, now + SLICE_SECONDS)
        return bool(self._urgent or self._others)

    def _advance(self, jobs: deque[_RenderJob], until: float) -> None:
        while jobs:
            job = jobs[0]
            if job.steps is None:
                job.steps = self._make(job)
            try:
                for _ in job.steps:
                    if self._clock() >= until:
                        return
            except Exception as error:
                self._once.defect(self._clock(), error, "rendering the page %s failed", job.rendering.kind)
                for _, answer in job.waiters:
                    answer.answer(FAILED)
                job.waiters = []
            if job.is_needed:  # the thread failed while rendering it, and is back: nothing else would complete it
                job.steps = None
            else:
                jobs.popleft()
                return  # so that those who waited for it have it before the next one is made

    def _make(self, job: _RenderJob) -> Iterator[None]:
        rendering, now = job.rendering, self._clock()
        page = self._cache.find(rendering, now)
        if page is None:
            bits = []
            for bit in rendering.pieces(now):
                bits.append(bit)
                yield
                if not job.is_needed:
                    return
            page = self._cache.keep(rendering, b"".join(bits), now)
        job.serve(False, page.plain)
        if page.packed is None and any(gzipped for gzipped, _ in job.waiters):
            bits = []
            for bit in compressed(page.plain):
                bits.append(bit)
                yield
            page.packed = b"".join(bits)
        if page.packed is not None:
            job.serve(True, page.packed)
