"""What answers at which path. Every answer comes from the last snapshot; none waits for a device.

Liveness and freshness are kept apart: `/-/healthy` says that the process does its work, `/-/ready` that its
last sample is fresh. An exporter whose one health check stays green while its data stand still is what
operators complain about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from agent.model import GroupReport, Snapshot
from exporters import envelope, landing, rules_json, snapshot_json
from exporters.encoder import Encoder
from exporters.negotiation import accepts_gzip, choose_format
from exporters.page import PageCache, age_of
from exporters.wire import Request, Response

_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_VARY = ("Vary", "Accept, Accept-Encoding")
_READ = ("GET", "HEAD")
_WRITE = ("POST", "PUT")
_NOT_YET = "no sample yet: the first one is still being taken"


@dataclass(frozen=True, slots=True)
class View:
    """What the site may know of the daemon.

    `health` gives whether the process is of any use, and what is wrong; `readiness` whether the last sample is
    fresh, and why not. `reload` asks for a reload and gives whether it went well, with a text; it is None where
    reloading over HTTP is not enabled. It runs in the server's thread and must be quick. `clock` is the clock of the
    snapshots' `mono`. `synthetic` names the scenario when the devices are not real. `rules` gives how every group of
    rules is doing, again in the server's thread; it is None where there is no rules engine. `rack` gives what the
    agents of the rack's other nodes are told, in JSON; None where no rack is configured.
    """

    latest: Callable[[], Snapshot | None]
    readiness: Callable[[], tuple[bool, str]]
    clock: Callable[[], float]
    node: str
    version: str
    reload: Callable[[], tuple[bool, str]] | None = None
    synthetic: str | None = None
    telemetry_path: str = "/metrics"
    rules: Callable[[], tuple[GroupReport, ...]] | None = None
    rack: Callable[[], bytes | None] | None = None
    health: Callable[[], tuple[bool, str]] = lambda: (True, "healthy")


RESERVED_PATHS = ("/-/healthy", "/-/ready", "/-/reload", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules",
                  "/api/v1/rack")  # fmt: skip
"""Paths that the metrics cannot have."""


class Site:
    """The handler for the server. Raises ValueError for a telemetry path that cannot be served."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._pages = PageCache(Encoder(), view.clock)
        self._routes: dict[str, tuple[tuple[str, ...], Callable[[Request], Response]]] = {
            "/": (_READ, self._landing),
            "/-/healthy": (_READ, self._healthy),
            "/-/ready": (_READ, self._ready),
            "/-/reload": (_WRITE, self._reload),
            "/api/v1/snapshot": (_READ, self._snapshot),
            "/api/v1/alerts": (_READ, self._alerts),
            "/api/v1/rules": (_READ, self._rules),
            "/api/v1/rack": (_READ, self._rack),
        }
        path = view.telemetry_path
        if not path.startswith("/") or (path in self._routes and path != "/"):
            raise ValueError(f"telemetry path {path!r}: give a path that starts with / and has no other use here")
        self._routes[path] = (_READ, self._metrics)

    def __call__(self, request: Request) -> Response:
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

    def _metrics(self, request: Request) -> Response:
        snapshot = self._view.latest()
        if snapshot is None:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_YET, _VARY)
        fmt = choose_format(request.headers.get("accept", ""))
        gzipped = accepts_gzip(request.headers.get("accept-encoding", ""))
        headers = (_VARY, ("Content-Encoding", "gzip")) if gzipped else (_VARY,)
        return Response(HTTPStatus.OK, self._pages.get(snapshot, fmt, gzipped), fmt.value, headers)

    def _healthy(self, request: Request) -> Response:
        del request
        healthy, text = self._view.health()
        return _text(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _ready(self, request: Request) -> Response:
        del request
        ready, text = self._view.readiness()
        return _text(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _reload(self, request: Request) -> Response:
        del request
        if self._view.reload is None:
            return _text(
                HTTPStatus.FORBIDDEN,
                "reloading over HTTP is not enabled: set web.enable_lifecycle in the configuration and restart,"
                " or send the process SIGHUP",
            )
        done, text = self._view.reload()
        return _text(HTTPStatus.OK if done else HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _snapshot(self, request: Request) -> Response:
        del request
        snapshot = self._view.latest()
        if snapshot is None:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, envelope.failure("unavailable", _NOT_YET), _JSON)
        return Response(HTTPStatus.OK, snapshot_json.success(snapshot, age_of(snapshot, self._view.clock())), _JSON)

    def _groups(self) -> tuple[GroupReport, ...]:
        return () if self._view.rules is None else self._view.rules()

    def _alerts(self, request: Request) -> Response:
        del request
        return Response(HTTPStatus.OK, rules_json.alerts(self._groups()), _JSON)

    def _rules(self, request: Request) -> Response:
        try:
            selection = rules_json.selection_of(request.query)
        except rules_json.ParameterError as error:
            return Response(HTTPStatus.BAD_REQUEST, envelope.failure("bad_data", str(error)), _JSON)
        return Response(HTTPStatus.OK, rules_json.rules(self._groups(), selection), _JSON)

    def _rack(self, request: Request) -> Response:
        del request
        told = None if self._view.rack is None else self._view.rack()
        if told is None:
            text = "no rack is configured here: set rack.name"
            return Response(HTTPStatus.NOT_FOUND, envelope.failure("not_found", text), _JSON)
        return Response(HTTPStatus.OK, told, _JSON)

    def _landing(self, request: Request) -> Response:
        del request
        view = self._view
        snapshot = view.latest()
        facts = landing.Facts(
            node=view.node,
            version=view.version,
            synthetic=view.synthetic,
            telemetry_path=view.telemetry_path,
            snapshot=snapshot,
            age=None if snapshot is None else age_of(snapshot, view.clock()),
            readiness=view.readiness(),
            groups=None if view.rules is None else view.rules(),
        )
        return Response(HTTPStatus.OK, landing.render(facts).encode("utf-8", "replace"), _HTML, landing.HEADERS)


def _text(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    return Response(status, f"{text}\n".encode("utf-8", "replace"), headers=headers)
