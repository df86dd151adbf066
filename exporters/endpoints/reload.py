"""`/-/reload`: reloads the configuration."""

from __future__ import annotations

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import WRITE, Endpoint, EndpointContext, text
from exporters.http_messages import Request


def _reload(context: EndpointContext, request: Request) -> Answer:
    if _is_from_another_site(request):
        return text(HTTPStatus.FORBIDDEN, "a page of another site may not ask for a reload")
    if context.reloads is None:
        return text(
            HTTPStatus.FORBIDDEN,
            "reloading over HTTP is disabled: set web.enable_lifecycle in the configuration and restart,"
            " or send the process SIGHUP",
        )
    return context.reloads.ask()


def _is_from_another_site(request: Request) -> bool:
    """Whether a browser asks on behalf of a page that is not ours: it would send its user's login along."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    own = origin is None or origin.partition("://")[2] == request.headers.get("host")
    return not own or site not in ("same-origin", "none")


ENDPOINT = Endpoint("/-/reload", _reload, WRITE)
