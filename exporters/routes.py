"""Route requests to handlers. Every response comes from the last snapshot; none waits for a device.

Liveness and freshness are separate: `/-/healthy` means that the process works, `/-/ready` that its
last sample is fresh. Operators complain about exporters whose only health check stays green while their data are
stale.

The endpoints are in `exporters/endpoints/`.
"""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import READ_METHODS, EndpointContext, RouteContext, text
from exporters.endpoints import ENDPOINTS
from exporters.endpoints.metrics import metrics_at
from exporters.http_messages import Request

_BROWSERS = frozenset({"origin", "sec-fetch-site"})
"""Headers that a browser adds to what a page sends (Fetch standard, Fetch Metadata), and that no page can leave out.

The agent's own pages change nothing, so no origin is trusted, and a name that is rebound to this address gains nothing.
"""


def is_reserved(path: str) -> bool:
    """Return whether the metrics cannot have a path because another page has it. They may take the overview's."""
    return any(
        path == endpoint.path != "/" or (endpoint.subpaths is not None and f"{path}/".startswith(endpoint.path))
        for endpoint in ENDPOINTS
    )


class Routes:
    """The server's handler. Raises ValueError for a telemetry path that cannot be served."""

    def __init__(self, view: RouteContext) -> None:
        path = view.telemetry_path
        if not path.startswith("/") or is_reserved(path):
            raise ValueError(f"telemetry path {path!r}: give a path that starts with / and is not reserved")
        metrics = metrics_at(path)
        listed = [(endpoint.path, endpoint.description) for endpoint in (metrics, *ENDPOINTS) if endpoint.description]
        self._context = EndpointContext(view, listed)
        self._routes: dict[str, tuple[tuple[str, ...], Callable[[Request], Answer]]] = {}
        for endpoint in (*ENDPOINTS, metrics):  # the metrics may take the path of the overview
            route = endpoint.methods, partial(endpoint.handler, self._context)
            subpaths = () if endpoint.subpaths is None else endpoint.subpaths(self._context)
            self._routes.update(dict.fromkeys((endpoint.path, *subpaths), route))

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
