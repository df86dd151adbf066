"""The endpoint of the metrics, at the path that the configuration gives."""

from http import HTTPStatus

from exporters.endpoint import NO_SAMPLE_YET, Endpoint, EndpointContext, text
from exporters.http_messages import Request, Response
from exporters.negotiation import choose_format
from exporters.pages import PageSource, age_of

_VARY = ("Vary", "Accept, Accept-Encoding")


def _metrics(context: EndpointContext, request: Request) -> Response:
    snapshot = context.view.scraped()
    if snapshot is None:
        return text(HTTPStatus.SERVICE_UNAVAILABLE, NO_SAMPLE_YET, _VARY)
    fmt = choose_format(request.headers.get("accept", ""))

    def render(now: float) -> bytes:
        return context.encoder.render(snapshot, fmt, age_of(snapshot, now))

    return context.pages.get(PageSource("metrics", fmt, (snapshot,), render, fmt.value, (_VARY,)), request)


def metrics_at(path: str) -> Endpoint:
    """Return the endpoint of the metrics at a path."""
    return Endpoint(path, _metrics, description="the metrics, for Prometheus")
