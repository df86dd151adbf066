"""How bytes get from and to a client: over its socket as they are, or encrypted (see `protection/tls_transport.py`).

A transport never waits. It counts what it takes, and `blocked` says that it holds bytes that the socket has not taken.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

CERTIFICATE, HANDSHAKE = "certificate", "handshake"
"""Why a client may not talk to the server: whom it says it is, or how it talks."""

CHUNK = 16 * 1024
"""Bytes that are read at once."""


class ClientTransport(Protocol):
    """What a connection needs of one. Every method raises OSError for a client that cannot be served any more."""

    sock: socket.socket

    @property
    def shaking(self) -> bool:
        """Whether the client has yet to show how, and as whom, it wants to talk."""

    @property
    def blocked(self) -> bool:
        """Whether bytes wait for the socket to take them."""

    def shake(self) -> None:
        """Go on with the handshake as far as possible now. Raises HandshakeRefusedError."""

    def receive(self) -> bytes | None:
        """What the client has sent, up to a chunk; None if there is nothing now, nothing at all if it has ended."""

    def send(self, pieces: Iterable[memoryview]) -> int:
        """Take bytes to be sent; returns how many, 0 if none can be taken now."""

    def end(self) -> None:
        """Tell the client that nothing more comes."""


class HandshakeRefusedError(OSError):
    """A client may not talk to the server, and has been told so; the text says why."""


class PlainTransport:
    """Bytes as they are."""

    __slots__ = ("sock",)
    shaking = blocked = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def shake(self) -> None:
        """There is no handshake."""

    def receive(self) -> bytes | None:
        with suppress(BlockingIOError, InterruptedError):
            return self.sock.recv(CHUNK)
        return None

    def send(self, pieces: Iterable[memoryview]) -> int:
        with suppress(BlockingIOError, InterruptedError):
            return self.sock.sendmsg(pieces)
        return 0

    def end(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)
