"""`/api/v1/history`: the last minutes of the metrics that a viewer draws."""

from __future__ import annotations

from http import HTTPStatus

from exporters import snapshot_json
from exporters.deferred import Answer
from exporters.endpoint import JSON, VARY_BY_ENCODING, Endpoint, EndpointContext, failure
from exporters.http_messages import Request
from exporters.pages import Rendering


def _history(context: EndpointContext, request: Request) -> Answer:
    view = context.view
    snapshot = view.all_series()
    if snapshot is None:
        return failure(HTTPStatus.NOT_FOUND, "not_found", "nothing is remembered here")
    rendering = Rendering("history", None, (snapshot,), lambda _: snapshot_json.past(view.history()), tells_age=False)
    return context.page(request, rendering, JSON, VARY_BY_ENCODING)


ENDPOINT = Endpoint("/api/v1/history", _history)
