"""Renders pages in slices, between the turns of the clients, in the thread that serves them.

The page of a node with 20,000 series takes tens of milliseconds, and so do thousands of alerts. A separate thread
would not help: Python runs one at a time. So a page is rendered in slices, after each of which clients
get their turns. The metrics go before everything else, in longer slices.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NamedTuple

from exporters.complaints import Complaints
from exporters.deferred import Answer, Deferred
from exporters.http_messages import Response
from exporters.page import PageCache, Rendering, compressed

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.002
URGENT_SLICE_SECONDS = 0.010
"""Seconds for which a page is rendered before the clients have their turn."""

FAILED = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error; coldplate's log says more\n")

Respond = Callable[[bytes], Response]


class _Waiter(NamedTuple):
    gzipped: bool
    answer: Deferred
    respond: Respond


class _Order:
    """A page that clients wait for."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self.waiters: list[_Waiter] = []

    @property
    def wanted(self) -> bool:
        return any(not waiter.answer.abandoned for waiter in self.waiters)

    def wants(self, gzipped: bool) -> bool:
        return any(waiter.gzipped is gzipped for waiter in self.waiters)

    def serve(self, gzipped: bool, body: bytes) -> None:
        for waiter in self.waiters:
            if waiter.gzipped is gzipped:
                waiter.answer.answer(waiter.respond(body))
        self.waiters = [waiter for waiter in self.waiters if waiter.gzipped is not gzipped]

    def fail(self) -> None:
        for waiter in self.waiters:
            waiter.answer.answer(FAILED)
        self.waiters = []


class _Line:
    """Orders that are completed one after the other."""

    def __init__(self) -> None:
        self.waiting: deque[_Order] = deque()
        self.begun: _Order | None = None
        self.steps: Iterator[None] = iter(())

    def __bool__(self) -> bool:
        return self.begun is not None or bool(self.waiting)

    def place_for(self, rendering: Rendering) -> _Order:
        """An order for that page: one that shows the same, or one that was not begun and will now show it instead."""
        if self.begun is not None and self.begun.rendering.same(rendering):
            return self.begun
        self.waiting = deque(order for order in self.waiting if order.wanted)
        for order in self.waiting:
            if (order.rendering.kind, order.rendering.detail) == (rendering.kind, rendering.detail):
                order.rendering = rendering
                return order
        self.waiting.append(_Order(rendering))
        return self.waiting[-1]


class RenderQueue:
    """Returns cached pages at once, and others when they are rendered. For the server's thread only.

    `work` has to be called again and again; `clock` is in seconds, for the length of a slice.
    """

    def __init__(self, cache: PageCache, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock
        self._urgent, self._others = _Line(), _Line()
        self._complaints = Complaints(logger)

    def get(self, rendering: Rendering, gzipped: bool, respond: Respond) -> Answer:
        """The response that `respond` makes from the page's bytes, now or later."""
        page = self._cache.find(rendering, self._clock())
        body = None if page is None else page.packed if gzipped else page.plain
        if body is not None:
            return respond(body)
        later = Deferred()
        line = self._urgent if rendering.urgent else self._others
        line.place_for(rendering).waiters.append(_Waiter(gzipped, later, respond))
        return later

    def work(self) -> bool:
        """Work for a slice of time; returns whether there is more to do."""
        now = self._clock()
        self._complaints.ease(now)
        if self._urgent:
            self._advance(self._urgent, now + URGENT_SLICE_SECONDS)
        else:
            self._advance(self._others, now + SLICE_SECONDS)
        return bool(self._urgent or self._others)

    def _advance(self, line: _Line, until: float) -> None:
        while line:
            if line.begun is None:
                line.begun = line.waiting.popleft()
                line.steps = self._make(line.begun)
            order = line.begun
            try:
                for _ in line.steps:
                    if self._clock() >= until:
                        return
            except Exception as error:
                self._complaints.defect(self._clock(), error, "rendering the page %s failed", order.rendering.kind)
                order.fail()
            if order.wanted:  # the thread failed while rendering it, and is back: nothing else would complete the page
                line.steps = self._make(order)
            else:
                line.begun = None
                return  # so that those who waited for it have it before the next one is made

    def _make(self, order: _Order) -> Iterator[None]:
        rendering, now = order.rendering, self._clock()
        page = self._cache.find(rendering, now)
        if page is None:
            bits = []
            for bit in rendering.pieces(now):
                bits.append(bit)
                yield
                if not order.wanted:
                    return
            page = self._cache.keep(rendering, b"".join(bits), now)
        order.serve(False, page.plain)
        if order.wants(gzipped=True) and page.packed is None:
            bits = []
            for bit in compressed(page.plain):
                bits.append(bit)
                yield
            page.packed = b"".join(bits)
        if page.packed is not None:
            order.serve(True, page.packed)
