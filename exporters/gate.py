"""Who may ask, how bytes get to a client and back, and which headers every answer has.

A transport sends bytes over a socket as they are, or encrypted (`protection/tls.py`). It never waits: it
counts what it takes, and `blocked` says that it holds bytes that the socket has not taken.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus

from exporters.deferred import Answer
from exporters.http_messages import Request, Response

CERTIFICATE, HANDSHAKE = "certificate", "handshake"
"""Why a client is rejected: its certificate or login, or its protocol."""

CHUNK = 16 * 1024
"""Bytes that are read at once."""


class HandshakeRefusedError(OSError):
    """The server rejected a client, and has sent it the reason; the text is the reason."""


class ClientTransport:
    """The transport of one connection, unencrypted.

    Every method raises OSError for a client that cannot be served any more.
    """

    __slots__ = ("shaking", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.shaking = False
        """Whether the handshake with the client is not complete yet."""

    @property
    def blocked(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        return False

    def shake(self) -> None:
        """Go on with the handshake as far as possible now. Raises HandshakeRefusedError."""

    def receive(self) -> bytes | None:
        """Return what the client has sent, up to a chunk; None if there is nothing now, no bytes if it has ended."""
        with suppress(BlockingIOError, InterruptedError):
            return self.sock.recv(CHUNK)
        return None

    def send(self, pieces: Iterable[memoryview]) -> int:
        """Take bytes to be sent; returns how many, 0 if none can be taken now."""
        with suppress(BlockingIOError, InterruptedError):
            return self.sock.sendmsg(pieces)
        return 0

    def end(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)


PASS = Response(HTTPStatus.OK)
"""The answer that a gate gives later to a request that may go on: no client sees it."""


class PortGate:
    """Everyone may ask, unencrypted. For the server's thread."""

    edition = 0
    """Another number once connections that were opened before should not be kept."""

    def transport(self, sock: socket.socket) -> ClientTransport:
        """Return how to talk to a new client."""
        return ClientTransport(sock)

    def admit(self, request: Request, peer: str) -> Answer | None:  # noqa: ARG002 for those who override it
        """Return None for a request that may go on; else its answer, or a promise that may turn out to be PASS."""
        return None

    def add_headers(self, response: Response) -> Response:
        """Return a response as it is sent."""
        return response
