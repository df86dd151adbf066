"""Certificates for tests, made once: an authority, a server and clients of it, and a stranger."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

HASHES = {
    # bcrypt with the lowest cost, of the password "right"
    "scraper": "$2b$04$TANUp0tK1c4xzPYaiVMGlOW6GDNIwDBgYdGOQRAgcz0.f1dYXbf1u"
}


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
