"""`/api/v1/rack`: for the agents of the rack's other nodes."""

from __future__ import annotations

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import JSON, Endpoint, EndpointContext, failure
from exporters.http_messages import Request, Response


def _rack(context: EndpointContext, request: Request) -> Answer:
    del request
    answer = context.view.rack()
    if answer is None:
        return failure(HTTPStatus.NOT_FOUND, "not_found", "no rack is configured here: set rack.name")
    return Response(HTTPStatus.OK, answer, JSON)


ENDPOINT = Endpoint("/api/v1/rack", _rack)
