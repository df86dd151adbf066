"""Certificates: which TLS trusts and shows, until when they are valid, and key pairs from memory.

Files are read by `textfile`, within its limits: the TLS library itself would wait for a pipe's writer. The standard
library gives the validity only of a peer's certificate.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from agent.lib.http_answers import HttpError, HttpFault
from agent.lib.http_target import HttpLogin, certificates
from agent.lib.textfile import CERTIFICATES, ReadError, read_bytes, stamp_of

if TYPE_CHECKING:
    import ssl

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
"""Tags of DER (X.690): a certificate is nested sequences, and its version is optional (RFC 5280, 4.1)."""
_BEFORE_VALIDITY = 3
"""Fields between the version and the validity: serial number, signature algorithm, issuer."""


def first_expiry(chain: bytes) -> float | None:
    """Return the Unix second at which the first certificate of a PEM file expires; None if none can be understood.

    A chain is as good as its worst part: a client refuses an issuer's certificate that has expired as well.
    """
    expiries = []
    for coded in _PEM.findall(chain):
        try:
            expiries.append(_expiry(base64.b64decode(coded)))
        except (ValueError, IndexError, StopIteration):
            continue
    return min(expiries, default=None)


def _expiry(certificate: bytes) -> float:
    """Return when it expires. Raises ValueError, IndexError or StopIteration for what is no certificate."""
    _, whole = next(_elements(certificate))
    _, signed = next(_elements(whole))
    fields = list(_elements(signed))
    if fields[0][0] == _VERSION:
        del fields[0]
    tag, validity = fields[_BEFORE_VALIDITY]
    if tag != _SEQUENCE:
        raise ValueError("no validity where it belongs")
    _, (kind, text) = _elements(validity)
    return _time(kind, text.decode("ascii"))


def _time(kind: int, text: str) -> float:
    """Return a time in UTC, in the two forms of RFC 5280, 4.1.2.5: years of two digits are those from 1950 to 2049."""
    if kind == _UTC_TIME:
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    elif kind != _GENERALIZED_TIME:
        raise ValueError("no time where it belongs")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element."""
    place = 0
    while place < len(data):
        tag, size, place = data[place], data[place + 1], place + 2
        if size >= 0x80:
            digits = size & 0x7F
            size = int.from_bytes(data[place : place + digits], "big")
            place += digits
        if place + size > len(data):
            raise ValueError("an element ends beyond its parent")
        yield tag, data[place : place + size]
        place += size


class KeyPairError(ValueError):
    """Certificate and key cannot be used together; the text says why, and repeats nothing of them."""


def load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a context present this certificate, a PEM with its chain behind it. Raises KeyPairError."""
    import ssl

    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise KeyPairError("the certificate is not in PEM; convert it with openssl x509 -outform pem")
    if b"PRIVATE KEY-----" not in key:
        raise KeyPairError("the key is not in PEM; convert it with openssl pkey -outform pem")
    with ExitStack() as stack:
        chain, private = (stack.enter_context(_lent(content)) for content in (certificate, key))
        try:
            context.load_cert_chain(chain, private, password=_no_password)
        except ssl.SSLError as error:
            raise KeyPairError(_ssl_reason(error)) from None
        except (_EncryptedError, OSError) as error:
            raise KeyPairError(str(error)) from None


class _EncryptedError(Exception):
    pass


def _no_password() -> str:
    """Give no password: without this, the library would ask at the terminal."""
    raise _EncryptedError("the key is encrypted; decrypt it with openssl pkey")


def _ssl_reason(error: ssl.SSLError) -> str:
    reason = error.reason or "unknown"
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return "the certificate is too weak for this machine's OpenSSL; use RSA with 2048 bits or P-256, and SHA-256"
    return f"OpenSSL cannot read certificate or key ({reason.replace('_', ' ').lower()})"


@contextmanager
def _lent(content: bytes) -> Iterator[str]:
    """Yield the name of a file in memory."""
    held = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(held), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{held}"
    finally:
        os.close(held)


class HttpTrust:
    """Trusts the login's file of certificates, or the system's if it names none; shows its own, if it has one."""

    def __init__(self, login: HttpLogin) -> None:
        self._login = login
        self._stamp: tuple[tuple[int, ...], ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the current context. Raises HttpError for a file that cannot be used."""
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
    """Return the key that names the file of an error."""
    files = {"cert_file": login.cert_file, "key_file": login.key_file}
    return next((key for key, file in files.items() if file and text.startswith(file)), "ca_file")


def _stamp(login: HttpLogin) -> tuple[tuple[int, ...], ...]:
    """Return what changes when the certificates do. Raises OSError for a file that does not exist."""
    import ssl

    own = tuple(stamp_of(path) for path in (login.cert_file, login.key_file) if path)
    if login.ca_file:
        return (stamp_of(login.ca_file), *own)
    paths = ssl.get_default_verify_paths()
    return (*(stamp_of(path) for path in (paths.cafile, paths.capath) if path), *own)
