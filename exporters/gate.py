"""Who may come in: how the server talks to each client, whom it answers, and what goes with every answer."""

from __future__ import annotations

import socket
from http import HTTPStatus
from typing import Protocol

from exporters.deferred import Answer
from exporters.http_messages import Request, Response
from exporters.transport import ClientTransport, PlainTransport

PASS = Response(HTTPStatus.OK)
"""The answer that a gate gives later to a request that may go on: no client sees it."""


class PortGate(Protocol):
    """For the server's thread."""

    @property
    def edition(self) -> int:
        """Another number once connections that were opened before should not be kept."""

    def transport(self, sock: socket.socket) -> ClientTransport:
        """How to talk to a new client."""

    def admit(self, request: Request, peer: str) -> Answer | None:
        """None for a request that may go on; else what it is answered, or a promise that may turn out to be PASS."""

    def dress(self, response: Response) -> Response:
        """A response as it is sent."""


class OpenGate:
    """Everyone may ask, unencrypted."""

    edition = 0

    def transport(self, sock: socket.socket) -> ClientTransport:
        return PlainTransport(sock)

    def admit(self, request: Request, peer: str) -> Answer | None:  # noqa: ARG002 the names are the protocol's
        return None

    def dress(self, response: Response) -> Response:
        return response
