"""Asks a site without a server between."""

from typing import Any

from agent.commands.simulate.site_pages import SitePages
from agent.model import Snapshot
from exporters.endpoint import RouteContext
from exporters.http_messages import Request, Response
from exporters.routes import Routes


def context(latest: Snapshot | None = None, **more: Any) -> RouteContext:
    """What a site shows: this snapshot, at second 100 of a node that is ready, but for what is given."""
    usual: dict[str, Any] = {
        "node": "n",
        "node_name": "n",
        "version": "1",
        "synthetic": None,
        "telemetry_path": "/metrics",
        "clock": lambda: 100.0,
        "scraped": lambda: latest,
        "all_series": lambda: latest,
        "history": tuple,
        "ledger": tuple,
        "rules": tuple,
        "rack": lambda: None,
        "readiness": lambda: (True, "fresh"),
        "health": lambda: (True, "healthy"),
        "runbooks": {},
        "reload": None,
    }
    return RouteContext(**(usual | more))


def overview(view: RouteContext, query: str = "") -> str:
    """The page at `/`."""
    return ask(Routes(view), Request("GET", "/", query=query)).body.decode()


def ask(site: Routes | SitePages, request: Request) -> Response:
    """What the client is told: nothing but reloads comes later, and those are tried by themselves."""
    answer = site(request)
    assert isinstance(answer, Response)
    return answer
