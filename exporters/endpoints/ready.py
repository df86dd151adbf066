"""`/-/ready`: whether no part has stopped, and which has, in a line each."""

from __future__ import annotations

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import Endpoint, EndpointContext, text
from exporters.http_messages import Request


def _ready(context: EndpointContext, request: Request) -> Answer:
    del request
    ready, words = context.view.readiness()
    return text(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, words)


ENDPOINT = Endpoint("/-/ready", _ready, description="whether all parts work; if not, which has stopped")
