"""Route requests to handlers. Every response comes from the last snapshot; none waits for a device.

Liveness and freshness are separate: `/-/healthy` means that the process works, `/-/ready` that its
last sample is fresh. Operators complain about exporters whose only health check stays green while their data are
stale.

All endpoints except the metrics, whose path is configured, are in `exporters/endpoints/`.
"""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import NO_SAMPLE_YET, READ_METHODS, EndpointContext, RouteContext, text
from exporters.endpoints import ENDPOINTS
from exporters.http_messages import Request, Response
from exporters.negotiation import choose_format
from exporters.pages import PageSource, age_of

_BROWSERS = frozenset({"origin", "sec-fetch-site"})
"""Headers that a browser adds to what a page sends (Fetch standard, Fetch Metadata), and that no page can leave out.

The agent's own pages change nothing, so no origin is trusted, and a name that is rebound to this address gains nothing.
"""
_VARY = ("Vary", "Accept, Accept-Encoding")


def is_reserved(path: str) -> bool:
    """Return whether the metrics cannot have a path because another page has it. They may take the overview's."""
    return any(
        path == each.path != "/" or (each.subpaths is not None and f"{path}/".startswith(each.path))
        for each in ENDPOINTS
    )


class Routes:
    """The server's handler. Raises ValueError for a telemetry path that cannot be served."""

    def __init__(self, view: RouteContext) -> None:
        path = view.telemetry_path
        if not path.startswith("/") or is_reserved(path):
            raise ValueError(f"telemetry path {path!r}: give a path that starts with / and is not reserved")
        listed = [(each.path, each.description) for each in ENDPOINTS if each.description]
        self._context = EndpointContext(view, [(path, "the metrics, for Prometheus"), *listed])
        self._routes: dict[str, tuple[tuple[str, ...], Callable[[Request], Answer]]] = {}
        for each in ENDPOINTS:
            route = each.methods, partial(each.handler, self._context)
            subpaths = () if each.subpaths is None else each.subpaths(self._context)
            self._routes.update(dict.fromkeys((each.path, *subpaths), route))
        self._routes[path] = READ_METHODS, self._metrics

    def __call__(self, request: Request) -> Answer:
        route = self._routes.get(request.path)
        if route is None:
            where = self._context.view.telemetry_path
            return text(HTTPStatus.NOT_FOUND, f"not found; the metrics are at {where}, the overview is at /")
        methods, answer = route
        if request.method not in methods:
            allow = ", ".join(methods)
            words = f"{request.method} is not supported here; use {allow}"
            return text(HTTPStatus.METHOD_NOT_ALLOWED, words, ("Allow", allow))
        if methods != READ_METHODS and not _BROWSERS.isdisjoint(request.headers):
            return text(HTTPStatus.FORBIDDEN, "a page in a browser may not change anything here; use curl, or SIGHUP")
        return answer(request)

    def _metrics(self, request: Request) -> Response:
        snapshot = self._context.view.scraped()
        if snapshot is None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, NO_SAMPLE_YET, _VARY)
        fmt = choose_format(request.headers.get("accept", ""))

        def render(now: float) -> bytes:
            return self._context.encoder.render(snapshot, fmt, age_of(snapshot, now))

        source = PageSource("metrics", fmt, (snapshot,), render, fmt.value, (_VARY,))
        return self._context.pages.get(source, request)
