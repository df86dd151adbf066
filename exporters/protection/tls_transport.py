"""Bytes to and from a client by TLS, between the client's socket and two buffers in memory.

OpenSSL never touches the socket: one turn reads at most one chunk, however many records a client has sent, and a
descriptor is closed as that of any other client. Memory is bounded: what OpenSSL keeps of a connection, a chunk that
came in, and one record that the socket has not taken.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from http import HTTPStatus

from exporters.gate import CERTIFICATE, CHUNK, HANDSHAKE, HandshakeRefusedError
from exporters.http_messages import Response
from exporters.protection.tls_context import names_of

_OF_CERTIFICATES = frozenset({"CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"})
"""OpenSSL's reasons (openssl/sslerr.h) that are about a client's certificate."""

_NOT_TLS = Response(HTTPStatus.BAD_REQUEST, b"this port speaks https, not http\n")


class TlsTransport:
    """One client's connection. Of its certificate one name must be among those `allowed`; None allows any.

    `count` is called with the reason of each rejected handshake: CERTIFICATE or HANDSHAKE.
    """

    __slots__ = ("_allowed", "_count", "_ended", "_incoming", "_outgoing", "_tls", "_unsent", "shaking", "sock")

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        allowed: Collection[str] | None,
        count: Callable[[str], None],
    ) -> None:
        self.sock = sock
        self.shaking = True
        self._allowed = allowed
        self._count = count
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = memoryview(b"")
        self._ended = False

    @property
    def blocked(self) -> bool:
        return bool(self._unsent) or self._outgoing.pending > 0

    def shake(self) -> None:
        data = self._raw()
        if data == b"":
            raise ConnectionResetError("the client left during the handshake")
        if data:
            self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._refuse(error)
        self._flush()
        if self._allowed is not None and not names_of(self._tls.getpeercert()).intersection(self._allowed):
            self._count(CERTIFICATE)
            raise HandshakeRefusedError("its certificate has none of the names in client_allowed_sans")
        self.shaking = False

    def receive(self) -> bytes | None:
        if self._ended:
            return self._raw()
        data = self._raw()
        if data:
            self._incoming.write(data)
        plain, closed = self._decrypted()
        self._flush()
        if plain:
            return plain
        return b"" if closed or data == b"" else None

    def send(self, pieces: Iterable[memoryview]) -> int:
        if not self._flush():
            return 0
        record = bytearray()
        for each in pieces:
            record += each[: CHUNK - len(record)]
        taken = self._tls.write(record) if record else 0
        self._flush()
        return taken

    def end(self) -> None:
        self._ended = True
        with suppress(ssl.SSLError):  # it says farewell, and would wait for the client's
            self._tls.unwrap()
        self._flush()
        self._outgoing.read()
        self._unsent = memoryview(b"")
        self.sock.shutdown(socket.SHUT_WR)

    def _refuse(self, error: ssl.SSLError) -> None:
        """Send the client the reason, as a TLS alert or to plain HTTP as a response. Always raises
        HandshakeRefusedError.
        """
        self._count(CERTIFICATE if error.reason in _OF_CERTIFICATES else HANDSHAKE)
        if error.reason == "HTTP_REQUEST":
            self._outgoing.read()
            self._unsent = memoryview(_NOT_TLS.head(False) + _NOT_TLS.body)
        self._flush()
        text = getattr(error, "verify_message", "") or (error.reason or "unknown").replace("_", " ").lower()
        raise HandshakeRefusedError(f"TLS: {text}") from None

    def _decrypted(self) -> tuple[bytes, bool]:
        """Return all that can be decrypted now, and whether the client has ended the TLS stream."""
        pieces = []
        try:
            while data := self._tls.read(CHUNK):
                pieces.append(data)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(pieces), True

    def _raw(self) -> bytes | None:
        with suppress(BlockingIOError, InterruptedError):
            return self.sock.recv(CHUNK)
        return None

    def _flush(self) -> bool:
        """Give the socket what waits for it; returns whether it took everything."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self.sock.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]
        return True
