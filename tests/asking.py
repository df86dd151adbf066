"""Asks a site without a server between."""

from __future__ import annotations

from exporters.deferred import Deferred
from exporters.http_messages import Request, Response
from exporters.routes import Routes


def ask(site: Routes, request: Request) -> Response:
    """What the client is told in the end: answers that come later are worked on until they are there."""
    answer = site(request)
    if isinstance(answer, Response):
        return answer
    return finish(site, answer)


def finish(site: Routes, answer: Deferred) -> Response:
    """The response, once the site has done all its work."""
    while site.work():
        pass
    assert answer.response is not None, "nothing is left to do, and there is no answer"
    return answer.response
