"""An endpoint: a path, its handler, and what handlers know about the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus

from msgspec import Struct, field

from agent.model import GroupReport, PastMoment, Snapshot
from exporters.deferred import Answer, Begin, ReloadRequests
from exporters.encoder import Encoder
from exporters.http_messages import Request, Response
from exporters.pages import PageCache, Rendering, RenderQueue, accepts_gzip
from exporters.rules_json import RulePrinter
from exporters.runbook_pages import RunbookPages


class RouteContext(Struct, frozen=True):
    """The functions and facts of the daemon that the pages use.

    `health` returns whether the process works, and what is wrong; `readiness` whether the last sample is fresh, and why
    not. `reload` starts a reload and returns at once; it calls its argument exactly once, in any thread, when the
    reload has ended, with its success and a text; None if reloading over HTTP is not enabled. `clock` is the clock of
    the snapshots' `mono`. `synthetic` names the scenario if the devices are not real. `rules` returns the state of
    every group of rules; None without a rule engine. `rack` returns the answer to the agents of the rack's other nodes,
    in JSON; None if no rack is configured. All of them are called in the server's thread and must be quick. `runbooks`
    has the Markdown of each alert's runbook, by the alert's name. `latest` returns the last sample with the series that
    a page of metrics shows; `whole` the same with all series, for the overview and viewers, where a series that scrapes
    exclude must not look missing; None if no series is excluded. `history` returns the samples of the last minutes that
    are in memory, the oldest first; None if the daemon keeps none. `scraped` returns the last sample as the page of
    metrics shows it, if that is not `latest`.
    """

    latest: Callable[[], Snapshot | None]
    readiness: Callable[[], tuple[bool, str]]
    clock: Callable[[], float]
    node: str
    version: str
    reload: Begin | None = None
    synthetic: str | None = None
    telemetry_path: str = "/metrics"
    rules: Callable[[], tuple[GroupReport, ...]] | None = None
    rack: Callable[[], bytes | None] | None = None
    health: Callable[[], tuple[bool, str]] = lambda: (True, "healthy")
    runbooks: Mapping[str, str] = field(default_factory=dict)
    whole: Callable[[], Snapshot | None] | None = None
    history: Callable[[], Sequence[PastMoment]] | None = None
    scraped: Callable[[], Snapshot | None] | None = None

    def on_the_page(self) -> Snapshot | None:
        """Return the last sample as the page of metrics shows it; None before the first."""
        return self.latest() if self.scraped is None else self.scraped()

    def everything(self) -> Snapshot | None:
        """Return the last sample with all series; None before the first."""
        return self.latest() if self.whole is None else self.whole()


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
        """Return the state of every group of rules; none if there is no rule engine."""
        return () if self.view.rules is None else self.view.rules()

    def page(self, request: Request, rendering: Rendering, media: str, *headers: tuple[str, str]) -> Answer:
        """Return a page that takes long to render or compress; compressed for clients that accept that."""
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


class Endpoint(Struct, frozen=True):
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
    """Return a line of plain text."""
    return Response(status, f"{words}\n".encode("utf-8", "replace"), headers=headers)
