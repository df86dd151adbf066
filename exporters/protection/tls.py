"""Serve TLS between a client's socket and two buffers in memory, by the settings of a web configuration file.

Only imported where TLS is served. OpenSSL never touches the socket: one turn reads at most one chunk, however many
records a client has sent, and a descriptor is closed as that of any other client. Memory is bounded: what OpenSSL
keeps of a connection, a chunk that came in, and one record that the socket has not taken.
"""

import ipaddress
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from agent.lib import textfile
from agent.lib.certificates import KeyPairError, load_key_pair
from exporters.gate import CERTIFICATE, CHUNK, HANDSHAKE, ClientTransport, HandshakeRefusedError
from exporters.http_messages import Response
from exporters.protection.web_file import CIPHERS, CURVES, ServerTls, WebFileError

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_KINDS = frozenset({"DNS", "email", "IP Address", "URI"})
"""Alternative names of a certificate that are compared, as OpenSSL calls them."""


def make_context(tls: ServerTls, path: Path) -> tuple[ssl.SSLContext, bytes]:
    """Return a server's context by these settings of the file at `path`, and the chain that it shows.

    Raises WebFileError.
    """

    def fail(key: str, problem: str) -> NoReturn:
        raise WebFileError(f"{path}: tls_server_config.{key}: {problem}")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    least = tls.min_version
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        older = [CIPHERS[suite] for suite in tls.cipher_suites if CIPHERS[suite]]
        if older:
            context.set_ciphers(":".join(older))
        else:
            least = "TLS13"
    context.minimum_version, context.maximum_version = _VERSIONS[least], _VERSIONS[tls.max_version]
    _set_curves(context, tls.curve_preferences, fail)
    context.num_tickets = 0  # scrapers keep their connections: nothing is to be resumed
    context.set_alpn_protocols(["http/1.1"])
    certificate, key = _pem("cert", tls.cert, tls.cert_file, fail), _pem("key", tls.key, tls.key_file, fail)
    try:
        load_key_pair(context, certificate, key)
    except KeyPairError as error:
        fail("cert_file" if tls.cert_file else "cert", str(error))
    _ask_clients(context, tls, fail)
    return context, certificate


def _set_curves(context: ssl.SSLContext, curves: Sequence[str], fail: Callable[[str, str], NoReturn]) -> None:
    if not curves:
        return
    names = [CURVES[curve] for curve in curves]
    if len(names) == 1:
        try:
            context.set_ecdh_curve(names[0])
        except (ValueError, ssl.SSLError):  # X25519 before OpenSSL 3
            fail("curve_preferences", f"{ssl.OPENSSL_VERSION} does not support {curves[0]} here; remove the key")
    elif hasattr(context, "set_groups"):  # from Python 3.15 on
        context.set_groups(":".join(names))
    else:
        problem = "this Python's TLS takes one curve only; give one, or remove the key for OpenSSL's order"
        fail("curve_preferences", problem)


def _ask_clients(context: ssl.SSLContext, tls: ServerTls, fail: Callable[[str, str], NoReturn]) -> None:
    """Ask clients for certificates, and trust the issuers that are named, or else the system's."""
    context.verify_mode = _VERIFY[tls.client_auth_type]
    if context.verify_mode is ssl.CERT_NONE:
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust an issuer in the file, even an intermediate one
    if not (tls.client_ca or tls.client_ca_file):
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    name = "client_ca_file" if tls.client_ca_file else "client_ca"
    issuers = _pem("client_ca", tls.client_ca, tls.client_ca_file, fail)
    try:
        context.load_verify_locations(cadata=issuers.decode("ascii", "replace").encode("ascii", "replace").decode())
    except ssl.SSLError:
        fail(name, "holds no certificate in PEM; give that of the issuer of the clients' certificates")


def _pem(key: str, text: str, file: str, fail: Callable[[str, str], NoReturn]) -> bytes:
    if not file:
        return text.encode()
    try:
        return textfile.read_bytes(file, textfile.CERTIFICATES)
    except textfile.ReadError as error:
        remedy = "" if ";" in error.problem else "; the agent's user must be able to read it"
        fail(f"{key}_file", f"{error}{remedy}")


def names_of(certificate: Mapping[str, Any] | None) -> set[str]:
    """Return the alternative names of a client's certificate, as `ssl` decodes it; addresses in their shortest form."""
    alternative_names = (certificate or {}).get("subjectAltName", ())
    return {_shortest(value) if kind == "IP Address" else value for kind, value in alternative_names if kind in _KINDS}


def _shortest(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address.strip()))
    except ValueError:
        return address


_OF_CERTIFICATES = frozenset({"CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"})
"""OpenSSL's reasons (openssl/sslerr.h) that are about a client's certificate."""

_NOT_TLS = Response(HTTPStatus.BAD_REQUEST, b"this port speaks https, not http\n")


class TlsTransport(ClientTransport):
    """One client's connection. Of its certificate one name must be among those `allowed`; None allows any.

    `count` is called with the reason of each rejected handshake: CERTIFICATE or HANDSHAKE.
    """

    __slots__ = ("_allowed", "_count", "_ended", "_incoming", "_outgoing", "_tls", "_unsent")

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        allowed: Collection[str] | None,
        count: Callable[[str], None],
    ) -> None:
        super().__init__(sock)
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
        data = super().receive()
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
            return super().receive()
        data = super().receive()
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
        for piece in pieces:
            record += piece[: CHUNK - len(record)]
        accepted = self._tls.write(record) if record else 0
        self._flush()
        return accepted

    def end(self) -> None:
        self._ended = True
        with suppress(ssl.SSLError):  # it says farewell, and would wait for the client's
            self._tls.unwrap()
        self._flush()
        self._outgoing.read()
        self._unsent = memoryview(b"")
        self.sock.shutdown(socket.SHUT_WR)

    def _refuse(self, error: ssl.SSLError) -> None:
        """Send the client the reason, as a TLS alert or to plain HTTP as a response. Raises HandshakeRefusedError."""
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
