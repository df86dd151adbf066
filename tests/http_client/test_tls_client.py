"""The client over TLS: servers that stall or are not trusted, and certificates that change or cannot be read."""

import os
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from agent.lib.http_answers import HttpError, HttpFault
from agent.lib.http_link import HttpRequest
from tests.http_client.test_hostile_servers import OK, TIME, TIMEOUT, UNREACHABLE, outcome, silent, well


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    """The file of its certificate."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


def secured(authority: trustme.CA, host: str = "127.0.0.1") -> Callable[[socket.socket], socket.socket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    return lambda held: context.wrap_socket(held, server_side=True)


def stalls(held: socket.socket) -> socket.socket:
    held.recv(1)
    time.sleep(2 * TIME)
    raise OSError


def drips_its_hello(held: socket.socket) -> socket.socket:
    held.sendall(b"\x16\x03\x03\x40\x00")
    for _ in range(40):
        time.sleep(0.03)
        held.sendall(b"\x02")
    raise OSError


def speaks_none(held: socket.socket) -> socket.socket:
    held.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    return held


def hangs_up(held: socket.socket) -> socket.socket:
    held.recv(1)
    held.close()
    raise OSError


@pytest.mark.parametrize(
    ("wrap", "fault"),
    [(stalls, TIMEOUT), (drips_its_hello, TIMEOUT), (speaks_none, UNREACHABLE), (hangs_up, UNREACHABLE)],
)
def test_tls_that_stalls_or_fails_ends_in_time(serve: Any, asker: Any, wrap: Any, fault: HttpFault) -> None:
    server = serve(silent, wrap=wrap)
    within = TIME if fault is TIMEOUT else 30.0
    assert outcome(asker(server.port, scheme="https"), within) is fault
    assert server.questions == []


def test_over_tls_answers_are_the_same(serve: Any, asker: Any, authority: trustme.CA, ca: str) -> None:
    long = OK + b"Content-Length: 60000\r\n\r\n" + b"x" * 60_000
    server = serve(lambda held, number: held.sendall(long), wrap=secured(authority))
    for options in ({"ca_file": ca}, {"verify": False}):
        one = asker(server.port, scheme="https", **options)
        large = HttpRequest("POST", "/", body=b"x" * 100)
        assert [one.ask(10.0).body, one.ask(10.0, large).body] == [b"x" * 60_000] * 2
    assert server.connections == 2


def test_a_server_without_a_trusted_certificate_gets_no_question(serve, asker, authority, ca: str) -> None:
    stranger = serve(silent, wrap=secured(trustme.CA()))
    misnamed = serve(silent, wrap=secured(authority, "10.9.9.9"))
    for server in (stranger, misnamed):
        with pytest.raises(HttpError, match="certificate not trusted: ") as told:
            asker(server.port, scheme="https", ca_file=ca).ask(10.0)
        assert told.value.fault is HttpFault.UNTRUSTED
        assert server.questions == []


def test_renewed_certificates_are_used(serve: Any, asker: Any, authority: trustme.CA, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(ca))
    server = serve(well, wrap=secured(authority))
    one = asker(server.port, scheme="https", ca_file=str(ca))
    assert outcome(one, 10.0) is HttpFault.UNTRUSTED
    authority.cert_pem.write_to_path(str(ca))
    assert outcome(one, 10.0) == (200, b"hi")


def test_certificates_that_cannot_be_read_are_named(serve, asker, authority: trustme.CA, tmp_path: Path) -> None:
    server = serve(well, wrap=secured(authority))
    (tmp_path / "empty").write_text("no certificate")
    os.mkfifo(tmp_path / "fifo")
    for name in ("empty", "fifo", "nowhere"):
        with pytest.raises(HttpError, match=f"ca_file .*{name}") as told:
            asker(server.port, scheme="https", ca_file=str(tmp_path / name)).ask(10.0)
        assert told.value.fault is HttpFault.UNREADABLE
    assert server.questions == []
