"""Which certificates TLS trusts: one context for all connections, replaced when the certificates change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.credentials import certificates
from agent.lib.http_outcomes import HttpError, HttpFault
from agent.lib.http_target import HttpLogin
from agent.lib.textfile import ReadError

if TYPE_CHECKING:  # costs memory, so it is loaded only if a server speaks TLS
    import ssl

Stamp = tuple[tuple[int, int, int], ...]


class HttpTrust:
    """Trusts the login's file of certificates, or the system's certificates if it names none."""

    def __init__(self, login: HttpLogin) -> None:
        self._login = login
        self._stamp: Stamp = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """The current context. Raises HttpError for a file that cannot be used."""
        login = self._login
        try:
            stamp = _stamp(login.ca_file)
            if self._context is None or stamp != self._stamp:
                self._context, self._stamp = _make(login), stamp
        except ReadError as error:
            raise HttpError(HttpFault.UNREADABLE, f"ca_file {error}") from error
        except OSError as error:  # also what ssl raises
            text = f"ca_file {login.ca_file}: {error.strerror or error}"
            raise HttpError(HttpFault.UNREADABLE, text) from error
        return self._context


def _make(login: HttpLogin) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cadata=certificates(login.ca_file) if login.ca_file else None)
    if not login.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _stamp(ca_file: str | None) -> Stamp:
    """What changes when the certificates do. Raises OSError for a file that does not exist."""
    import ssl

    if ca_file:
        return (_state(ca_file),)
    paths = ssl.get_default_verify_paths()
    return tuple(_state(each) for each in (paths.cafile, paths.capath) if each)


def _state(path: str) -> tuple[int, int, int]:
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
