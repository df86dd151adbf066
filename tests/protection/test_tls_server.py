"""The server behind TLS: what clients get, who is refused, and what a client that misbehaves costs."""

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from exporters import connection
from exporters.http_messages import Request, Response
from exporters.protection.passwords import PasswordChecks
from exporters.protection.web_gate import WebGate, load_terms
from exporters.server import HttpServer
from tests.protection.conftest import HASHES
from tests.waiting import wait_until

BIG = bytes(range(256)) * 8192


def answer(request: Request) -> Response:
    return Response(HTTPStatus.OK, BIG if request.path == "/big" else request.path.encode() + request.body)


class Site:
    def __init__(self, stack: ExitStack, folder: Path, text: str, **options: Any) -> None:
        self.folder = folder
        self.file = folder / "site.yml"
        self.file.write_text(text)
        self.gate = WebGate(load_terms(self.file), PasswordChecks(time.monotonic), time.monotonic)
        self.server = HttpServer([("127.0.0.1", 0)], answer, clock=time.monotonic, gate=self.gate, **options)
        self.server.start()
        stack.callback(self.server.stop)
        self.address = self.server.addresses[0]
        self._stack = stack

    def context(self, client: str | None = None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if client is not None:
            made.load_cert_chain(self.folder / f"{client}.pem", self.folder / f"{client}.key")
        return made

    def raw(self) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(self.address, 5))

    def secured(self) -> ssl.SSLSocket:
        wrapped = self.context().wrap_socket(self.raw(), server_hostname="localhost")
        return self._stack.enter_context(wrapped)

    def connection(self, client: str | None = None) -> http.client.HTTPSConnection:
        made = http.client.HTTPSConnection(*self.address, timeout=5, context=self.context(client))
        self._stack.callback(made.close)
        return made

    def get(self, path: str = "/", client: str | None = None) -> bytes:
        connection = self.connection(client)
        connection.request("GET", path)
        return connection.getresponse().read()


@pytest.fixture
def site(certificates) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:
        yield lambda text, **options: Site(stack, certificates.folder, f"tls_server_config: {{{text}}}", **options)


PAIR = "cert_file: server.pem, key_file: server.key"
REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
MUTUAL = f"{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem"


@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
def test_pages_and_large_requests_arrive_whole_and_connections_are_kept(site, version: str) -> None:
    running = site(f"{PAIR}, min_version: {version}, max_version: {version}")
    connection, large = running.connection(), b"x" * 60_000
    for path, sent, body in (("/a", b"", b"/a"), ("/big", b"", BIG), ("/p", large, b"/p" + large), ("/b", b"", b"/b")):
        connection.request("POST" if sent else "GET", path, body=sent or None)
        assert connection.getresponse().read() == body
    assert running.server.connections == 1


def test_requests_in_one_record_are_all_answered(site) -> None:
    running = site(PAIR)
    sock = running.secured()
    sock.sendall(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + b"GET /2 HTTP/1.0\r\n\r\n")
    told = b"".join(iter(lambda: sock.recv(65536), b""))
    assert told.count(b"\r\n\r\n/1") == 3
    assert told.endswith(b"/2")


def test_a_byte_at_a_time_is_a_handshake_and_a_request(site) -> None:
    """Whatever the network cuts: nothing is lost at the seams."""
    running = site(PAIR)
    sock, incoming, outgoing = running.raw(), ssl.MemoryBIO(), ssl.MemoryBIO()
    client = running.context().wrap_bio(incoming, outgoing, server_hostname="localhost")

    def until(step: Callable[[], Any]) -> Any:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                done = None
            for byte in outgoing.read():
                sock.sendall(bytes([byte]))
            if done is not None:
                return done
            incoming.write(sock.recv(7))

    until(lambda: client.do_handshake() or True)
    client.write(b"GET /slow HTTP/1.0\r\n\r\n")
    told = b""
    while not told.endswith(b"/slow"):
        told += until(lambda: client.read(100))


def test_plain_http_is_told_to_speak_tls(site) -> None:
    sock = site(PAIR).raw()
    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    told = b"".join(iter(lambda: sock.recv(65536), b""))
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"https" in told


def test_who_is_refused_is_counted_by_the_reason(site) -> None:
    running = site(f"{MUTUAL}, client_allowed_sans: [scraper.example]")
    running.get("/in", "client")
    assert set(running.gate.refused.values()) == {0}
    for client in (None, "stranger", "server"):  # the last one has no name that is let in
        with pytest.raises(REFUSED):
            running.get("/in", client)
    wait_until(lambda: running.gate.refused["certificate"] == 3)
    running.raw().sendall(b"GET / HTTP/1.1\r\n\r\n")
    wait_until(lambda: running.gate.refused["handshake"] == 1)
    assert (running.gate.refused["login"], running.gate.refused["rate"]) == (0, 0)


def test_logins_and_requests_that_are_refused_are_counted(certificates) -> None:
    file = certificates.folder / "rate.yml"
    file.write_text(f"basic_auth_users: {{scraper: {HASHES['scraper']}}}\nrate_limit: {{interval: 1h, burst: 2}}\n")
    checks = PasswordChecks(time.monotonic)
    gate = WebGate(load_terms(file), checks, lambda: 0.0)
    for _ in range(3):
        answer = gate.admit(Request("GET", "/"), "client")
        assert isinstance(answer, Response)
        assert gate.add_headers(answer) is answer
    assert gate.refused == {"certificate": 0, "handshake": 0, "login": 2, "rate": 1}


@pytest.mark.parametrize(
    ("names", "is_in"), [("[scraper.example]", True), ("[127.0.0.1]", True), ("[other.example]", False), ("[]", False)]
)
def test_only_clients_with_an_allowed_name_are_let_in(site, names: str, is_in: bool) -> None:
    running = site(f"{MUTUAL}, client_allowed_sans: {names}")
    with nullcontext() if is_in else pytest.raises(REFUSED):
        assert running.get("/in", "client") == b"/in"


def test_silent_clients_leave_after_the_request_timeout_and_others_find_a_place(site, monkeypatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_SECONDS", 0.3)
    running = site(PAIR, max_connections=4)
    silent = [running.raw() for _ in range(20)]
    for half in silent[10:]:
        half.sendall(b"\x16\x03\x01\x02\x00")
    assert running.get("/in") == b"/in"
    assert running.server.connections <= 4
    for each in silent:
        with suppress(ConnectionError):
            assert each.recv(1) == b""


def test_one_turn_takes_one_chunk_however_much_was_sent(certificates) -> None:
    """A client that sends without end must not keep the thread."""
    file = certificates.folder / "alone.yml"
    file.write_text(f"tls_server_config: {{{PAIR}}}")
    gate = WebGate(load_terms(file), PasswordChecks(time.monotonic), time.monotonic)
    trust = ssl.create_default_context(cafile=str(certificates.folder / "ca.pem"))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
        ours.setblocking(False)
        transport = gate.transport(ours)
        while transport.shaking:
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            theirs.sendall(outgoing.read())
            transport.shake()
            if transport.shaking:
                incoming.write(theirs.recv(65536))
        for _ in range(8):
            client.write(b"y" * 16384)
        theirs.sendall(outgoing.read())
        got = [transport.receive() or b"" for _ in range(20)]
        assert sum(map(len, got)) == 8 * 16384
        assert max(map(len, got)) <= 32768


def test_connections_under_former_terms_are_not_kept(site) -> None:
    running = site(PAIR)
    connection = running.connection()
    connection.request("GET", "/a")
    assert connection.getresponse().read() == b"/a"
    running.file.write_text(f"tls_server_config: {{{MUTUAL}}}")
    running.gate.enforce(load_terms(running.file))
    running.server.nudge()
    wait_until(lambda: running.server.connections == 0)
    with pytest.raises(REFUSED):
        running.get("/a")
    assert running.get("/a", "client") == b"/a"
