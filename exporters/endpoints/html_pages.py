"""The pages for a browser: the overview of the node, and what each alert means and what to do."""

from collections.abc import Iterator

from exporters import landing, markup
from exporters.deferred import Answer
from exporters.endpoint import Endpoint, EndpointContext
from exporters.http_messages import Request
from exporters.pages import Rendering
from exporters.runbook_pages import PREFIX


def _overview(context: EndpointContext, request: Request) -> Answer:
    refresh = landing.refresh_of(request.query)

    def pieces(now: float) -> Iterator[bytes]:
        return landing.pieces(context.view, context.listed, now, refresh)

    headers = (("Vary", "Accept-Encoding"), *markup.page_headers("no-store"))
    return context.pages.get(Rendering("landing", refresh, (), pieces, "text/html; charset=utf-8", headers), request)


OVERVIEW = Endpoint("/", _overview)
RUNBOOKS = Endpoint(
    PREFIX,
    lambda context, request: context.runbooks.page(request.path),
    description="what each alert means and what to do",
    subpaths=lambda context: context.runbooks.paths,
)
