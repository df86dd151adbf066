"""`/api/v1/history`: the last minutes of the metrics that a viewer draws."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from exporters import envelope, snapshot_json
from exporters.deferred import Answer
from exporters.endpoint import JSON, VARY_BY_ENCODING, Endpoint, EndpointContext
from exporters.http_messages import Request, Response
from exporters.pages import Rendering


def _history(context: EndpointContext, request: Request) -> Answer:
    view = context.view
    snapshot = None if view.history is None else view.latest()
    if view.history is None or snapshot is None:
        return Response(HTTPStatus.NOT_FOUND, envelope.failure("not_found", "nothing is remembered here"), JSON)
    moments = view.history

    def pieces(now: float) -> Iterator[bytes]:
        del now
        return snapshot_json.past(moments())

    return context.page(
        request, Rendering("history", None, (snapshot,), pieces, tells_age=False), JSON, VARY_BY_ENCODING
    )


ENDPOINT = Endpoint("/api/v1/history", _history)
