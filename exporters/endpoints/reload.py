"""`/-/reload`: reloads the configuration."""

from __future__ import annotations

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import WRITE_METHODS, Endpoint, EndpointContext, text
from exporters.http_messages import Request


def _reload(context: EndpointContext, _request: Request) -> Answer:
    if context.reloads is None:
        return text(
            HTTPStatus.FORBIDDEN,
            "reloading over HTTP is disabled: set web.enable_lifecycle in the configuration and restart,"
            " or send the process SIGHUP",
        )
    return context.reloads.ask()


ENDPOINT = Endpoint("/-/reload", _reload, WRITE_METHODS)
