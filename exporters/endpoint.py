"""An endpoint: a path, its handler, and the handler's context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from agent.model import GroupReport
from exporters.deferred import Answer
from exporters.encoder import Encoder
from exporters.http_messages import Request, Response
from exporters.negotiation import accepts_gzip
from exporters.page import PageCache, Rendering
from exporters.reloads import ReloadRequests
from exporters.render_queue import RenderQueue
from exporters.route_context import RouteContext
from exporters.rules_json import RulePrinter
from exporters.runbook_pages import RunbookPages

READ = ("GET", "HEAD")
WRITE = ("POST", "PUT")
JSON = "application/json"
BY_ENCODING = ("Vary", "Accept-Encoding")
NOT_YET = "no sample yet: the first one is in progress"
_GZIP = ("Content-Encoding", "gzip")
_TIDY_SECONDS = 1.0
"""Seconds between two searches for pages that are no longer needed."""


class EndpointContext:
    """What all endpoints of one server share: what they show, and what renders and caches their pages.

    `listed` are the paths that the overview lists, with their descriptions. For the server's thread only.
    """

    def __init__(self, view: RouteContext, listed: Sequence[tuple[str, str]] = ()) -> None:
        self.view = view
        self.listed = listed
        self.encoder = Encoder()
        self.printer = RulePrinter()
        self.runbooks = RunbookPages(view.runbooks, view.node)
        self.reloads = None if view.reload is None else ReloadRequests(view.reload)
        self._pages = PageCache()
        self._queue = RenderQueue(self._pages, view.clock)
        self._tidied = float("-inf")

    def groups(self) -> tuple[GroupReport, ...]:
        """The state of every group of rules; none if there is no rule engine."""
        return () if self.view.rules is None else self.view.rules()

    def page(self, request: Request, rendering: Rendering, media: str, *headers: tuple[str, str]) -> Answer:
        """A page that takes long to render or compress; compressed for clients that accept that."""
        gzipped = accepts_gzip(request.headers.get("accept-encoding", ""))
        if gzipped:
            headers = (*headers, _GZIP)
        return self._queue.get(rendering, gzipped, lambda body: Response(HTTPStatus.OK, body, media, headers))

    def work(self) -> bool:
        """Work for a moment on answers that are not ready yet; returns whether there is more to do."""
        now = self.view.clock()
        if now - self._tidied >= _TIDY_SECONDS:
            self._tidied = now
            if not self._pages.drop_old(now):
                self.printer.forget()
        if self.reloads is not None:
            self.reloads.step()
        return self._queue.work()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path, and the handler that answers there.

    `answer` is called in the server's thread, and must be quick: what takes long is a `Rendering` that it passes to
    `EndpointContext.page`, or a `Deferred`. `what` describes the path on the overview; an endpoint without it is not
    listed there. `below` gives the paths below this one that it answers, too.
    """

    path: str
    answer: Callable[[EndpointContext, Request], Answer]
    methods: tuple[str, ...] = READ
    what: str = ""
    below: Callable[[EndpointContext], Iterable[str]] | None = None


def text(status: HTTPStatus, words: str, *headers: tuple[str, str]) -> Response:
    """A line of plain text."""
    return Response(status, f"{words}\n".encode("utf-8", "replace"), headers=headers)
