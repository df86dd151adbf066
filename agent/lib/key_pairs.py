"""Gives TLS a certificate and its key from memory: the library opens files itself, and would wait for a pipe's writer.

So files are read by `textfile`, within its limits, and a key that stands in a configuration needs no file on a disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


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
        chain, private = (stack.enter_context(_lent(each)) for each in (certificate, key))
        try:
            context.load_cert_chain(chain, private, password=_no_password)
        except ssl.SSLError as error:
            raise KeyPairError(_why(error)) from None
        except (_EncryptedError, OSError) as error:
            raise KeyPairError(str(error)) from None


class _EncryptedError(Exception):
    pass


def _no_password() -> str:
    """Without this, the library would ask at the terminal."""
    raise _EncryptedError("the key is encrypted; decrypt it with openssl pkey")


def _why(error: ssl.SSLError) -> str:
    reason = error.reason or "unknown"
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return "the certificate is too weak for this machine's OpenSSL; use RSA with 2048 bits or P-256, and SHA-256"
    return f"OpenSSL cannot read certificate or key ({reason.replace('_', ' ').lower()})"


@contextmanager
def _lent(content: bytes) -> Iterator[str]:
    """The name of a file in memory."""
    held = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(held), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{held}"
    finally:
        os.close(held)
