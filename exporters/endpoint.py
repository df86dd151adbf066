"""What an endpoint is: a path, who answers there, and what an answer is made with."""

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
"""Seconds between two looks for pages that nobody needs any more."""


class EndpointContext:
    """What all endpoints of one server share: what they show, and what makes and keeps pages of it.

    `listed` are the paths that the overview lists, with what is found there. For the server's thread alone.
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
        """How every group of rules is doing; none where there is no rules engine."""
        return () if self.view.rules is None else self.view.rules()

    def page(self, request: Request, rendering: Rendering, media: str, *headers: tuple[str, str]) -> Answer:
        """A page that takes long to make or to compress; compressed for those who accept that."""
        gzipped = accepts_gzip(request.headers.get("accept-encoding", ""))
        if gzipped:
            headers = (*headers, _GZIP)
        return self._queue.get(rendering, gzipped, lambda body: Response(HTTPStatus.OK, body, media, headers))

    def work(self) -> bool:
        """Go on for a moment with answers that are not ready yet; whether there is more to do."""
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
    """One path, and who answers there.

    `answer` is called in the server's thread, and must be quick: what takes long is a `Rendering` that it has made by
    `EndpointContext.page`, or a `Deferred`. `what` says on the overview what is found here; an endpoint without it is
    not listed there. `below` gives the paths below this one that it answers, too.
    """

    path: str
    answer: Callable[[EndpointContext, Request], Answer]
    methods: tuple[str, ...] = READ
    what: str = ""
    below: Callable[[EndpointContext], Iterable[str]] | None = None


def text(status: HTTPStatus, words: str, *headers: tuple[str, str]) -> Response:
    """A line of plain text."""
    return Response(status, f"{words}\n".encode("utf-8", "replace"), headers=headers)
