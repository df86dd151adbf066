"""Certificates for tests, made once: an authority, a server and clients of it, and a stranger."""

import contextlib
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

HASHES = {
    # bcrypt with the lowest cost, of the password "right"
    "scraper": "$2b$04$TANUp0tK1c4xzPYaiVMGlOW6GDNIwDBgYdGOQRAgcz0.f1dYXbf1u"
}


def in_memory(server: ssl.SSLContext | None, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection in memory, the server's and the client's, after their handshake."""
    assert server is not None
    pipes = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = server.wrap_bio(*pipes, server_side=True), client.wrap_bio(*pipes[::-1])
    for _ in range(3):
        for end in ends[::-1]:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends


def trusting() -> ssl.SSLContext:
    """A client that takes any certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def write_leaf(folder: Path, name: str, leaf: trustme.LeafCert) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return certificate, key


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Files below one folder: ca.pem, server.pem/.key, client.pem/.key, stranger.pem/.key."""
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    write_leaf(folder, "server", authority.issue_cert("localhost", "127.0.0.1"))
    write_leaf(folder, "client", authority.issue_cert("scraper.example", "127.0.0.1"))
    write_leaf(folder, "stranger", other.issue_cert("scraper.example"))
    return SimpleNamespace(folder=folder, authority=authority)
