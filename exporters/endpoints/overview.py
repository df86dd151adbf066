"""`/`: the overview of the node for a browser."""

from __future__ import annotations

from collections.abc import Iterator

from exporters import landing, markup
from exporters.deferred import Answer
from exporters.endpoint import VARY_BY_ENCODING, Endpoint, EndpointContext
from exporters.http_messages import Request
from exporters.pages import Rendering, age_of


def _overview(context: EndpointContext, request: Request) -> Answer:
    refresh = landing.refresh_of(request.query)

    def pieces(now: float) -> Iterator[bytes]:
        return landing.pieces(_facts(context, now, refresh))

    rendering = Rendering("landing", refresh, (), pieces)
    return context.page(request, rendering, "text/html; charset=utf-8", VARY_BY_ENCODING, *markup.HEADERS)


def _facts(context: EndpointContext, now: float, refresh: int) -> landing.Facts:
    view = context.view
    shown = view.scraped()
    snapshot = view.all_series()
    return landing.Facts(
        node=view.node,
        version=view.version,
        synthetic=view.synthetic,
        snapshot=snapshot,
        series=None if shown is None else len(shown),
        age=None if snapshot is None else age_of(snapshot, now),
        readiness=view.readiness(),
        groups=view.rules(),
        refresh=refresh,
        runbooks=view.runbooks,
        pages=context.listed,
        moments=view.history(),
    )


ENDPOINT = Endpoint("/", _overview)
