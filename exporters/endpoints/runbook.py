"""`/runbooks/`: what each alert means and what to do."""

from __future__ import annotations

from exporters.deferred import Answer
from exporters.endpoint import Endpoint, EndpointContext
from exporters.http_messages import Request
from exporters.runbook_pages import PREFIX


def _runbook(context: EndpointContext, request: Request) -> Answer:
    return context.runbooks.page(request.path)


ENDPOINT = Endpoint(PREFIX, _runbook, subpaths=lambda context: context.runbooks.paths)
