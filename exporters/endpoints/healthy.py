"""`/-/healthy`: whether the process works."""

from __future__ import annotations

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import Endpoint, EndpointContext, text
from exporters.http_messages import Request


def _healthy(context: EndpointContext, request: Request) -> Answer:
    del request
    healthy, words = context.view.health()
    return text(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, words)


ENDPOINT = Endpoint("/-/healthy", _healthy, description="whether the process is alive")
