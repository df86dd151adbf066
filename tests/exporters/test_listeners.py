"""Where the server listens, what it says when it cannot, and the descriptor in reserve."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus

import pytest

from exporters.http_messages import Request, Response
from exporters.listeners import open_listeners
from exporters.server import BindError, HttpServer
from tests.exporters.conftest import Serve, hello


def server_on(*listen: tuple[str, int]) -> HttpServer:
    return HttpServer(listen, hello, clock=time.monotonic)


def answers(family: int, host: str, port: int) -> bool:
    with socket.socket(family) as client:
        client.settimeout(3.0)
        client.connect((host, port))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return client.recv(100).startswith(b"HTTP/1.1 200")


def loopback_has_ipv6() -> bool:
    """Whether this machine has any: kernel, interface and settings may each do without."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_what_the_kernel_keeps_for_a_client_is_bounded() -> None:
    """It grows to megabytes of its own accord for one that does not read, and counts to a service's memory."""
    (listener,) = open_listeners([("127.0.0.1", 0)])
    with closing(listener), socket.create_connection(listener.getsockname()):
        client, _ = listener.accept()
        with closing(client):
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 256 * 1024
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 64 * 1024
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.fixture
def taken() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        yield holder.getsockname()[1]


def refusal(*listen: tuple[str, int]) -> str:
    server = server_on(*listen)
    with pytest.raises(BindError) as caught:
        server.start()
    server.stop()
    assert server.addresses == []
    text = str(caught.value)
    assert "\n" not in text
    assert "--web.listen-address" in text
    return text


def test_the_empty_host_means_every_interface_of_both_families(request: pytest.FixtureRequest) -> None:
    server = server_on(("", 0))
    request.addfinalizer(server.stop)
    server.start()
    ((_, port),) = server.addresses
    assert port != 0
    assert answers(socket.AF_INET, "127.0.0.1", port)
    if loopback_has_ipv6():
        assert answers(socket.AF_INET6, "::1", port)


def test_a_port_in_use_is_named_with_the_remedy_and_other_addresses_are_freed(taken: int) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        free = probe.getsockname()[1]
    text = refusal(("127.0.0.1", free), ("127.0.0.1", taken))
    assert f"127.0.0.1:{taken}" in text
    assert "in use" in text
    assert f"sport = :{taken}" in text
    socket.create_server(("127.0.0.1", free)).close()


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        pytest.param("192.0.2.1", 1234, "192.0.2.1:1234", id="of no interface"),  # RFC 5737: nobody's
        pytest.param("no.such.host.invalid", 19400, "no.such.host.invalid:19400", id="a host that does not resolve"),
        pytest.param("127.0.0.1", 70000, "70000", id="a port that does not exist"),
    ],
)
def test_an_address_at_which_nobody_can_listen_is_named(host: str, port: int, said: str) -> None:
    assert said in refusal((host, port))


def test_several_addresses_are_served_and_a_stopped_server_can_be_started_again() -> None:
    server = server_on(("127.0.0.1", 0), ("127.0.0.2", 0))
    for _ in range(2):
        server.start()
        assert [host for host, _ in server.addresses] == ["127.0.0.1", "127.0.0.2"]
        assert all(answers(socket.AF_INET, host, port) for host, port in server.addresses)
        server.stop()
        server.stop()
    assert server.addresses == []


# Polite clients get what HTTP/1.1 promises them.
GET = b"GET /%s HTTP/1.1\r\nHost: n\r\n\r\n"


def test_a_client_is_closed_that_wants_it_or_speaks_http_1_0_without_keep_alive(serve: Serve) -> None:
    running = serve()
    asked_to = running.exchange(b"GET /a HTTP/1.1\r\nHost: n\r\nConnection: TE, Close\r\n\r\n" + GET % b"never")
    assert b"Connection: close" in asked_to
    assert asked_to.count(b"HTTP/1.1") == 1
    assert running.exchange(b"GET /a HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nGET /a")
    client = running.client()
    for _ in range(2):
        client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, headers, body = client.response()
        assert (status, headers["Connection"], body) == (200, "keep-alive", b"GET /a")


def test_a_client_that_asks_before_it_sends_its_body_is_told_to_continue(serve: Serve) -> None:
    client = serve().client()
    client.send(b"POST /a HTTP/1.1\r\nHost: n\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert client.sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b" bo")
    client.send(b"dy")
    assert client.response()[2] == b"POST /a body"


def test_a_handler_that_fails_costs_its_answer_and_one_log_entry(serve: Serve, caplog) -> None:
    def handler(request: Request) -> Response:
        if request.path == "/bad":
            raise ZeroDivisionError("our bug")
        return Response(HTTPStatus.OK, b"fine")

    running = serve(handler)
    status, _, body = running.get("/bad")
    assert status == 500
    assert b"our bug" not in body
    assert running.get("/good")[2] == b"fine"
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.exc_info is not None
    assert "/bad" in record.getMessage()


def test_stopping_hangs_up_and_ends_the_thread(serve: Serve) -> None:
    before = threading.active_count()
    running = serve()
    idle, half = running.client(), running.client()
    half.send(b"GET / HT")
    running.get()
    start = time.monotonic()
    running.server.stop()
    assert time.monotonic() - start < 0.5
    assert threading.active_count() == before
    assert idle.rest() == half.rest() == b""
    with pytest.raises(ConnectionError):
        running.client()


def test_stopping_lets_an_answer_on_its_way_finish(serve: Serve) -> None:
    page = b"x" * (6 * 1024 * 1024)  # more than the kernel holds, and little for a second
    running = serve(lambda request: Response(HTTPStatus.OK, page))
    client = running.client(receive_buffer=65536)
    client.send(GET % b"")
    assert client.sock.recv(1) == b"H"  # it has begun
    stopper = threading.Thread(target=running.server.stop)
    stopper.start()
    assert client.rest().endswith(page)
    stopper.join()


def test_stopping_does_not_wait_for_a_client_that_never_reads(serve: Serve) -> None:
    running = serve(lambda request: Response(HTTPStatus.OK, b"x" * (16 * 1024 * 1024)))
    client = running.client(receive_buffer=4096)
    client.send(GET % b"")
    assert client.sock.recv(1) == b"H"
    start = time.monotonic()
    running.server.stop()
    assert time.monotonic() - start < 1.5
