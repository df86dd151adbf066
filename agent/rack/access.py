"""How peers are reached: in clear or with TLS, and how to log in there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.credentials import LOOPBACK, authorization, certificates, check_login
from agent.lib.textfile import ReadError
from agent.rack.peer_errors import PeerError, PeerFault
from agent.rack.peer_messages import PATH
from agent.rack.targets import Entry, HostEntry, PeerTarget, show_address

if TYPE_CHECKING:  # costs memory, so it is loaded only where peers speak TLS
    import ssl


@dataclass(frozen=True, slots=True)
class Access:
    """As configured. The files are read anew for each connection. Raises ValueError."""

    tls: bool = False
    username: str = ""
    password_file: str | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        check_login(self.username, self.password_file, self.bearer_token_file)
        if self.ca_file and not self.tls:
            raise ValueError("ca_file needs https; set scheme: https, or remove ca_file")

    def check(self, entries: Iterable[Entry]) -> None:
        """Refuse to send credentials over a network in clear. Raises ValueError."""
        if self.tls or not (self.username or self.bearer_token_file):
            return
        if not all(isinstance(each, HostEntry) and each.host in LOOPBACK for each in entries):
            raise ValueError("would send the credentials in clear text; set scheme: https")

    def request(self, target: PeerTarget) -> bytes:
        """The question, as it is sent. Raises PeerError."""
        try:
            login = authorization(self.username, self.password_file, self.bearer_token_file)
        except ValueError as error:
            raise PeerError(PeerFault.CONNECT, f"cannot read the credentials: {error}") from error
        lines = [
            f"GET {PATH} HTTP/1.1",
            f"Host: {show_address(target.host, target.port)}",
            "User-Agent: coldplate",
            "Accept: application/json",
            *(f"{name}: {value}" for name, value in login.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


class PeerTrust:
    """Whom to trust with TLS: one context for all peers, made anew when the file of certificates changes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._stamp: tuple[int, int] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Raises PeerError for a file that cannot be used."""
        import ssl

        access = self._access
        try:
            status = Path(access.ca_file).stat() if access.ca_file else None
            stamp = (status.st_mtime_ns, status.st_size) if status else (0, 0)
            if self._context is None or stamp != self._stamp:
                context = ssl.create_default_context(cadata=certificates(access.ca_file) if access.ca_file else None)
                if not access.verify:
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                self._context, self._stamp = context, stamp
        except ReadError as error:
            raise PeerError(PeerFault.CONNECT, f"ca_file {error}") from error
        except OSError as error:  # also what ssl raises
            raise PeerError(PeerFault.CONNECT, f"ca_file {access.ca_file}: {error.strerror or error}") from error
        return self._context
