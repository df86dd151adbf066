"""One kept connection to a peer, which never waits: it does what can be done now, and says what it waits for.

Redirects are not followed and proxies of the environment are not used, because each would carry credentials away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from agent.rack.access import Access, PeerTrust
from agent.rack.http import AnswerReader, HttpAnswer
from agent.rack.peer_errors import PeerError, PeerFault
from agent.rack.peer_messages import GarbageError
from agent.rack.targets import PeerTarget

if TYPE_CHECKING:
    import ssl

_CHUNK = 16 * 1024
_READS = 8
"""Chunks that are read before the other peers have their turn."""


class _Stage(Enum):
    IDLE = auto()
    CONNECTING = auto()
    SHAKING = auto()
    SENDING = auto()
    READING = auto()


class PeerLink:
    """Asks one target. For one thread.

    `watch` is called with the socket and what it waits for, and with None when the socket is about to be closed.
    """

    def __init__(
        self, target: PeerTarget, access: Access, trust: PeerTrust, watch: Callable[[socket.socket, int | None], None]
    ) -> None:
        self.target = target
        self._access = access
        self._trust = trust
        self._watch = watch
        self._socket: socket.socket | None = None
        self._reader = AnswerReader()
        self._stage = _Stage.IDLE
        self._wanted: int | None = None
        self._kept = False
        self._turn = 0
        self._request = b""
        self._unsent = b""

    def begin(self) -> HttpAnswer | None:
        """Ask, over the kept connection if there is one; see `advance`. Raises PeerError."""
        self._kept = self._socket is not None
        if not self._kept:
            self._connect()
            return None
        self._unsent = self._request
        self._stage = _Stage.SENDING
        return self.advance()

    def advance(self) -> HttpAnswer | None:
        """Go on with what the socket is ready for; the answer once it is whole. Raises PeerError."""
        try:
            return self._advance()
        except GarbageError as error:
            raise PeerError(PeerFault.GARBAGE, str(error)) from error
        except ValueError as error:  # TLS, about a host that no certificate can name
            raise PeerError(PeerFault.CONNECT, str(error)) from error
        except OSError as error:
            if not self._is_outdated():
                raise PeerError(PeerFault.CONNECT, _describe(error)) from error
        self.close()  # the peer had hung up on a connection that was kept: once more, on a new one
        return self.begin()

    def close(self) -> None:
        """Hang up; the next question opens a new connection."""
        held, self._socket = self._socket, None
        self._stage = _Stage.IDLE
        self._reader = AnswerReader()
        if held is not None:
            self._forget(held)
            held.close()

    def _is_outdated(self) -> bool:
        return self._kept and not self._reader.begun and self._stage in (_Stage.SENDING, _Stage.READING)

    def _advance(self) -> HttpAnswer | None:
        if self._stage is _Stage.CONNECTING:
            self._connected()
        if self._stage is _Stage.SHAKING:
            self._shake()
        if self._stage is _Stage.SENDING:
            self._send()
        return self._read() if self._stage in (_Stage.READING, _Stage.IDLE) else None

    def _connect(self) -> None:
        target = self.target
        if not target.addresses:
            raise PeerError(PeerFault.CONNECT, f"{target.host}: unknown host")
        address = target.addresses[self._turn % len(target.addresses)]
        self._turn += 1  # the next attempt, if there is one, is made at the next address
        self._request = self._unsent = self._access.request(target)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self._socket.connect_ex((address, target.port))
        except OSError as error:
            raise PeerError(PeerFault.CONNECT, _describe(error)) from error
        if code not in (0, errno.EINPROGRESS):
            raise PeerError(PeerFault.CONNECT, os.strerror(code))
        self._stage = _Stage.CONNECTING
        self._want(selectors.EVENT_WRITE)

    def _connected(self) -> None:
        held = self._held
        code = held.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._turn -= 1  # this address is the good one
        if not self._access.tls:
            self._stage = _Stage.SENDING
            return
        context = self._trust.context()
        self._forget(held)
        self._socket = context.wrap_socket(held, server_hostname=self.target.host, do_handshake_on_connect=False)
        self._stage = _Stage.SHAKING

    def _shake(self) -> None:
        import ssl

        secured: ssl.SSLSocket = self._held  # type: ignore[assignment]  # wrapped a moment ago
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            self._want(selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._want(selectors.EVENT_WRITE)
        except ssl.SSLCertVerificationError as error:
            remedy = "set rack.peer.ca_file to the issuer's certificate, or rack.peer.verify: false"
            raise PeerError(PeerFault.CONNECT, f"certificate not trusted: {error.verify_message}; {remedy}") from error
        else:
            self._stage = _Stage.SENDING

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                self._unsent = self._unsent[self._held.send(self._unsent) :]
            except OSError as error:
                if not _wants(error):
                    raise
        if self._unsent:
            self._want(selectors.EVENT_WRITE)
        else:
            self._stage = _Stage.READING
            self._want(selectors.EVENT_READ)

    def _read(self) -> HttpAnswer | None:
        for _ in range(_READS):
            try:
                data = self._held.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as error:
                if _wants(error):
                    return None
                raise
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the peer closed the connection")
            if self._stage is _Stage.IDLE:
                raise GarbageError("an unsolicited response")
            answer = self._reader.feed(data)
            if answer is not None:
                self._stage = _Stage.IDLE
                if answer.closes:
                    self.close()
                return answer
        return None

    @property
    def _held(self) -> socket.socket:
        assert self._socket is not None, "a link that is not idle has a socket"
        return self._socket

    def _want(self, events: int) -> None:
        if events != self._wanted:
            self._wanted = events
            self._watch(self._held, events)

    def _forget(self, held: socket.socket) -> None:
        self._wanted = None
        self._watch(held, None)


def _wants(error: OSError) -> bool:
    """Whether TLS only says that it cannot go on now; then it has something to send or to read first."""
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def _describe(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
