"""Polite clients get what HTTP/1.1 promises them."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from http import HTTPStatus

import pytest

from exporters.http_messages import Request, Response
from tests.exporters.conftest import Serve

GET = b"GET /%s HTTP/1.1\r\nHost: n\r\n\r\n"


def test_a_connection_is_used_again(serve: Serve) -> None:
    connection = http.client.HTTPConnection(*serve().address[:2], timeout=5.0)
    connection.request("GET", "/a")
    assert connection.getresponse().read() == b"GET /a"
    first = connection.sock
    connection.request("POST", "/b", body=b" body")
    assert connection.getresponse().read() == b"POST /b body"
    assert connection.sock is first
    connection.close()


def test_an_http_1_0_client_is_hung_up_on_unless_it_wants_to_stay(serve: Serve) -> None:
    running = serve()
    assert running.exchange(b"GET /a HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nGET /a")
    client = running.client()
    for _ in range(2):
        client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, headers, body = client.response()
        assert (status, headers["Connection"], body) == (200, "keep-alive", b"GET /a")


def test_the_server_hangs_up_when_asked_to(serve: Serve) -> None:
    answer = serve().exchange(b"GET /a HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n" + GET % b"never")
    assert b"Connection: close" in answer
    assert answer.count(b"HTTP/1.1") == 1


def test_head_gives_the_length_and_no_body(serve: Serve) -> None:
    answer = serve().exchange(b"HEAD /abc HTTP/1.1\r\nHost: n\r\n\r\nGET /next HTTP/1.0\r\n\r\n")
    first, second, body = answer.split(b"\r\n\r\n")
    assert b"Content-Length: %d" % len("HEAD /abc") in first
    assert second.startswith(b"HTTP/1.1 200")
    assert body == b"GET /next"


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    count = 100
    requests = b"".join(GET % str(number).encode() for number in range(count))
    answer = serve().exchange(requests + b"GET /last HTTP/1.0\r\n\r\n")
    places = [answer.index(b"\r\n\r\nGET /%d" % number) for number in range(count)]
    assert places == sorted(places)
    assert answer.endswith(b"GET /last")


def test_a_client_that_has_sent_all_and_half_closed_still_gets_its_answer(serve: Serve) -> None:
    client = serve().client()
    client.send(GET % b"a" + GET % b"b")
    client.sock.shutdown(1)
    answer = client.rest()
    assert answer.endswith(b"GET /b")
    assert answer.count(b"HTTP/1.1 200") == 2


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
