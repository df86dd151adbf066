"""The pages for a browser: the overview of the node, and what each alert means and what to do."""

from exporters import landing, markup
from exporters.deferred import Answer
from exporters.endpoint import Endpoint, EndpointContext
from exporters.http_messages import Request
from exporters.pages import PageSource
from exporters.runbook_pages import PREFIX


def _overview(context: EndpointContext, request: Request) -> Answer:
    refresh = landing.refresh_of(request.query)

    def render(now: float) -> bytes:
        return landing.render(context.view, context.listed, now, refresh)

    headers = (("Vary", "Accept-Encoding"), *markup.page_headers("no-store"))
    return context.pages.get(PageSource("landing", refresh, (), render, "text/html; charset=utf-8", headers), request)


OVERVIEW = Endpoint("/", _overview)
RUNBOOKS = Endpoint(
    PREFIX,
    lambda context, request: context.runbooks.page(request.path),
    description="what each alert means and what to do",
    subpaths=lambda context: context.runbooks.paths,
)
