"""`/api/v1/rack`: for the agents of the rack's other nodes."""

from __future__ import annotations

from http import HTTPStatus

from exporters import envelope
from exporters.deferred import Answer
from exporters.endpoint import JSON, Endpoint, EndpointContext
from exporters.http_messages import Request, Response


def _rack(context: EndpointContext, request: Request) -> Answer:
    del request
    answer = context.view.rack()
    if answer is None:
        text = "no rack is configured here: set rack.name"
        return Response(HTTPStatus.NOT_FOUND, envelope.failure("not_found", text), JSON)
    return Response(HTTPStatus.OK, answer, JSON)


ENDPOINT = Endpoint("/api/v1/rack", _rack)
