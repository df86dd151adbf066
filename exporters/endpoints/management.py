"""The endpoints of Prometheus's management API: whether the process works, whether all parts do, and a reload."""

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import WRITE_METHODS, Endpoint, EndpointContext, text
from exporters.http_messages import Request, Response


def _state(is_good: bool, words: str) -> Response:
    return text(HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE, words)


def _reload(context: EndpointContext, _request: Request) -> Answer:
    if context.reloads is None:
        return text(
            HTTPStatus.FORBIDDEN,
            "reloading over HTTP is disabled: set web.enable_lifecycle in the configuration and restart,"
            " or send the process SIGHUP",
        )
    return context.reloads.ask()


HEALTHY = Endpoint(
    "/-/healthy", lambda context, _: _state(*context.view.health()), description="whether the process is alive"
)
READY = Endpoint(
    "/-/ready",
    lambda context, _: _state(*context.view.readiness()),
    description="whether all parts work; if not, which has stopped",
)
RELOAD = Endpoint("/-/reload", _reload, WRITE_METHODS)
