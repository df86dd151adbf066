"""`/api/v1/rules`: rules and the result of their last evaluation, as in Prometheus's own API."""

from __future__ import annotations

from http import HTTPStatus

from exporters.deferred import Answer
from exporters.endpoint import JSON, VARY_BY_ENCODING, Endpoint, EndpointContext, failure
from exporters.http_messages import Request
from exporters.pages import Rendering
from exporters.rules_json import ParameterError, selection_of


def _rules(context: EndpointContext, request: Request) -> Answer:
    try:
        selection = selection_of(request.query)
    except ParameterError as error:
        return failure(HTTPStatus.BAD_REQUEST, "bad_data", str(error))
    groups = context.view.rules()
    rendering = Rendering(
        "rules", selection, groups, lambda _: context.printer.rules(groups, selection), tells_age=False
    )
    return context.page(request, rendering, JSON, VARY_BY_ENCODING)


ENDPOINT = Endpoint(
    "/api/v1/rules", _rules, description="rules and the result of their last evaluation, in Prometheus's JSON"
)
