"""Which certificates TLS trusts and shows: one context for all connections, replaced when the certificates change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.credentials import certificates
from agent.lib.http_outcomes import HttpError, HttpFault
from agent.lib.http_target import HttpLogin
from agent.lib.key_pairs import KeyPairError, load_key_pair
from agent.lib.textfile import CERTIFICATES, ReadError, read_bytes

if TYPE_CHECKING:  # costs memory, so it is loaded only if a server speaks TLS
    import ssl

Stamp = tuple[tuple[int, int, int], ...]


class HttpTrust:
    """Trusts the login's file of certificates, or the system's if it names none; shows its own, if it has one."""

    def __init__(self, login: HttpLogin) -> None:
        self._login = login
        self._stamp: Stamp = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """The current context. Raises HttpError for a file that cannot be used."""
        login = self._login
        try:
            stamp = _stamp(login)
            if self._context is None or stamp != self._stamp:
                self._context, self._stamp = _make(login), stamp
        except ReadError as error:
            raise HttpError(HttpFault.UNREADABLE, f"{_key_of(login, str(error))} {error}") from error
        except KeyPairError as error:
            raise HttpError(HttpFault.UNREADABLE, f"cert_file {login.cert_file}: {error}") from error
        except OSError as error:  # also what ssl raises
            file = error.filename or login.ca_file
            text = f"{_key_of(login, str(file))} {file}: {error.strerror or error}"
            raise HttpError(HttpFault.UNREADABLE, text) from error
        return self._context


def _make(login: HttpLogin) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cadata=certificates(login.ca_file) if login.ca_file else None)
    if login.pinned:
        context.check_hostname = False
        context.verify_flags = ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_TRUSTED_FIRST
    if not login.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if login.cert_file and login.key_file:
        load_key_pair(context, read_bytes(login.cert_file, CERTIFICATES), read_bytes(login.key_file, CERTIFICATES))
    return context


def _key_of(login: HttpLogin, text: str) -> str:
    """The key that names the file of an error."""
    files = {"cert_file": login.cert_file, "key_file": login.key_file}
    return next((key for key, file in files.items() if file and text.startswith(file)), "ca_file")


def _stamp(login: HttpLogin) -> Stamp:
    """What changes when the certificates do. Raises OSError for a file that does not exist."""
    import ssl

    own = tuple(_state(each) for each in (login.cert_file, login.key_file) if each)
    if login.ca_file:
        return (_state(login.ca_file), *own)
    paths = ssl.get_default_verify_paths()
    return (*(_state(each) for each in (paths.cafile, paths.capath) if each), *own)


def _state(path: str) -> tuple[int, int, int]:
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
