"""`/api/v1/alerts`: pending and firing alerts, as in Prometheus's own API."""

from __future__ import annotations

from exporters.deferred import Answer
from exporters.endpoint import JSON, VARY_BY_ENCODING, Endpoint, EndpointContext
from exporters.http_messages import Request
from exporters.pages import Rendering


def _alerts(context: EndpointContext, request: Request) -> Answer:
    groups = context.view.rules()
    rendering = Rendering("alerts", None, groups, lambda _: context.printer.alerts(groups), tells_age=False)
    return context.page(request, rendering, JSON, VARY_BY_ENCODING)


ENDPOINT = Endpoint("/api/v1/alerts", _alerts, description="pending and firing alerts, in Prometheus's JSON")
