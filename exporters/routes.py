"""What answers at which path. Every answer comes from the last snapshot; none waits for a device.

Liveness and freshness are kept apart: `/-/healthy` says that the process does its work, `/-/ready` that its
last sample is fresh. An exporter whose one health check stays green while its data stand still is what
operators complain about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from agent.model import GroupReport, Snapshot
from exporters import envelope, landing, landing_style, snapshot_json
from exporters.deferred import Answer
from exporters.encoder import Encoder
from exporters.http_messages import Request, Response
from exporters.negotiation import accepts_gzip, choose_format
from exporters.page import PageCache, Rendering, age_of
from exporters.reloads import Begin, ReloadRequests
from exporters.render_queue import RenderQueue
from exporters.rule_selection import ParameterError, selection_of
from exporters.rules_json import RulePrinter
from exporters.runbook_pages import PREFIX, RunbookPages

_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_VARY = ("Vary", "Accept, Accept-Encoding")
_VARY_JSON = ("Vary", "Accept-Encoding")
_GZIP = ("Content-Encoding", "gzip")
_TIDY_SECONDS = 1.0
"""Seconds between two looks for pages that nobody needs any more."""
_READ = ("GET", "HEAD")
_WRITE = ("POST", "PUT")
_NOT_YET = "no sample yet: the first one is still being taken"


@dataclass(frozen=True, slots=True)
class RouteContext:
    """What the site may know of the daemon.

        `health` gives whether the process is of any use, and what is wrong; `readiness` whether the last sample is
    fresh, and why not. `reload` begins a reload and returns at once; it has what it is given called exactly once, in
    any thread, when the reload is over, with whether it went well and a text. It is None where reloading over HTTP is
    not enabled. `clock` is the clock of the snapshots' `mono`. `synthetic` names the scenario when the devices are not
    real. `rules` gives how every group of rules is doing; it is None where there is no rules engine. `rack` gives what
    the agents of the rack's other nodes are told, in JSON; None where no rack is configured. All of them are called in
    the server's thread and must be quick. `runbooks` has the Markdown of each alert's runbook, by the alert's name.
    `latest` gives the last sample with what a page of metrics shows of it; `whole` the same with everything, for the
    overview: what a scrape leaves out is no trouble of the node. It is None where nothing is left out.
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


RESERVED_PATHS = ("/-/healthy", "/-/ready", "/-/reload", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules",
                  "/api/v1/rack")  # fmt: skip
"""Paths that the metrics cannot have, beside those of runbooks."""


def is_reserved(path: str) -> bool:
    """Whether the metrics cannot have a path, since another page has it."""
    return path in RESERVED_PATHS or f"{path}/".startswith(PREFIX)


class Routes:
    """The handler for the server, which also has to call `work` at every turn.

    Raises ValueError for a telemetry path that cannot be served.
    """

    def __init__(self, view: RouteContext) -> None:
        self._view = view
        self._encoder = Encoder()
        self._printer = RulePrinter()
        self._pages = PageCache()
        self._queue = RenderQueue(self._pages, view.clock)
        self._reloads = None if view.reload is None else ReloadRequests(view.reload)
        self._tidied = float("-inf")
        self._routes: dict[str, tuple[tuple[str, ...], Callable[[Request], Answer]]] = {
            "/": (_READ, self._landing),
            "/-/healthy": (_READ, self._healthy),
            "/-/ready": (_READ, self._ready),
            "/-/reload": (_WRITE, self._reload),
            "/api/v1/snapshot": (_READ, self._snapshot),
            "/api/v1/alerts": (_READ, self._alerts),
            "/api/v1/rules": (_READ, self._rules),
            "/api/v1/rack": (_READ, self._rack),
        }
        self._runbook_pages = RunbookPages(view.runbooks, view.node)
        self._routes.update((path, (_READ, self._runbook)) for path in self._runbook_pages.paths)
        path = view.telemetry_path
        if not path.startswith("/") or is_reserved(path):
            raise ValueError(f"telemetry path {path!r}: give a path that starts with / and has no other use here")
        self._routes[path] = (_READ, self._metrics)

    def __call__(self, request: Request) -> Answer:
        route = self._routes.get(request.path)
        if route is None:
            where = self._view.telemetry_path
            return _text(HTTPStatus.NOT_FOUND, f"nothing is here; the metrics are at {where}, an overview is at /")
        methods, answer = route
        if request.method not in methods:
            allow = ", ".join(methods)
            text = f"{request.method} does not work here; use {allow}"
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", allow))
        return answer(request)

    def work(self) -> bool:
        """Go on for a moment with answers that are not ready yet; whether there is more to do."""
        now = self._view.clock()
        if now - self._tidied >= _TIDY_SECONDS:
            self._tidied = now
            if not self._pages.drop_old(now):
                self._printer.forget()
        if self._reloads is not None:
            self._reloads.step()
        return self._queue.work()

    def _give(self, request: Request, rendering: Rendering, media: str, *headers: tuple[str, str]) -> Answer:
        """A page, compressed for those who accept that."""
        gzipped = accepts_gzip(request.headers.get("accept-encoding", ""))
        if gzipped:
            headers = (*headers, _GZIP)
        return self._queue.get(rendering, gzipped, lambda body: Response(HTTPStatus.OK, body, media, headers))

    def _metrics(self, request: Request) -> Answer:
        snapshot = self._view.latest()
        if snapshot is None:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_YET, _VARY)
        fmt = choose_format(request.headers.get("accept", ""))

        def pieces(now: float) -> Iterator[bytes]:
            return self._encoder.pieces(snapshot, fmt, age_of(snapshot, now))

        return self._give(request, Rendering("metrics", fmt, (snapshot,), pieces, urgent=True), fmt.value, _VARY)

    def _healthy(self, request: Request) -> Answer:
        del request
        healthy, text = self._view.health()
        return _text(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _ready(self, request: Request) -> Answer:
        del request
        ready, text = self._view.readiness()
        return _text(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _reload(self, request: Request) -> Answer:
        del request
        if self._reloads is None:
            return _text(
                HTTPStatus.FORBIDDEN,
                "reloading over HTTP is not enabled: set web.enable_lifecycle in the configuration and restart,"
                " or send the process SIGHUP",
            )
        return self._reloads.ask()

    def _snapshot(self, request: Request) -> Answer:
        snapshot = self._view.latest()
        if snapshot is None:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, envelope.failure("unavailable", _NOT_YET), _JSON)

        def pieces(now: float) -> Iterator[bytes]:
            return snapshot_json.success(snapshot, age_of(snapshot, now))

        return self._give(request, Rendering("snapshot", None, (snapshot,), pieces), _JSON, _VARY_JSON)

    def _groups(self) -> tuple[GroupReport, ...]:
        return () if self._view.rules is None else self._view.rules()

    def _alerts(self, request: Request) -> Answer:
        groups = self._groups()
        rendering = Rendering("alerts", None, groups, lambda _: self._printer.alerts(groups), tells_age=False)
        return self._give(request, rendering, _JSON, _VARY_JSON)

    def _rules(self, request: Request) -> Answer:
        try:
            selection = selection_of(request.query)
        except ParameterError as error:
            return Response(HTTPStatus.BAD_REQUEST, envelope.failure("bad_data", str(error)), _JSON)
        groups = self._groups()

        def pieces(_: float) -> Iterator[bytes]:
            return self._printer.rules(groups, selection)

        return self._give(request, Rendering("rules", selection, groups, pieces, tells_age=False), _JSON, _VARY_JSON)

    def _rack(self, request: Request) -> Answer:
        del request
        told = None if self._view.rack is None else self._view.rack()
        if told is None:
            text = "no rack is configured here: set rack.name"
            return Response(HTTPStatus.NOT_FOUND, envelope.failure("not_found", text), _JSON)
        return Response(HTTPStatus.OK, told, _JSON)

    def _runbook(self, request: Request) -> Answer:
        return self._runbook_pages.page(request.path)

    def _landing(self, request: Request) -> Answer:
        refresh = landing.refresh_of(request.query)
        rendering = Rendering("landing", refresh, (), lambda now: landing.pieces(self._facts(now, refresh)))
        return self._give(request, rendering, _HTML, _VARY_JSON, *landing_style.HEADERS)

    def _facts(self, now: float, refresh: int) -> landing.Facts:
        view = self._view
        shown = view.latest()
        snapshot = shown if view.whole is None else view.whole()
        return landing.Facts(
            node=view.node,
            version=view.version,
            synthetic=view.synthetic,
            telemetry_path=view.telemetry_path,
            snapshot=snapshot,
            series=None if shown is None else len(shown),
            age=None if snapshot is None else age_of(snapshot, now),
            readiness=view.readiness(),
            groups=None if view.rules is None else view.rules(),
            refresh=refresh,
            runbooks=view.runbooks,
        )


def _text(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    return Response(status, f"{text}\n".encode("utf-8", "replace"), headers=headers)
