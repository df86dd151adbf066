"""An answer that comes later: the client waits for it, and nobody else does."""

import gc
import http.client
import socket
import struct
import threading
import weakref
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from exporters.deferred import Deferred
from exporters.http_messages import Request, Response
from tests.exporters.conftest import Client, Running, Serve
from tests.waiting import wait_until

GET = b"GET /%s HTTP/1.1\r\nHost: n\r\n\r\n"
pytestmark = pytest.mark.usefixtures("quiet")
LATE = Response(HTTPStatus.GATEWAY_TIMEOUT, b"later than late")


class Promises:
    """A handler that promises everything below /later, and keeps it when the test says so."""

    def __init__(self, patience: float = 30.0) -> None:
        self.patience = patience
        self.made: list[Deferred] = []

    def __call__(self, request: Request) -> Response | Deferred:
        if request.path == "/at-once":
            kept = Deferred()
            for text in (b"here", b"too late"):
                kept.answer(Response(HTTPStatus.OK, text))
            return kept
        if not request.path.startswith("/later"):
            return Response(HTTPStatus.OK, request.path.encode())
        self.made.append(Deferred(self.patience, LATE))
        return self.made[-1]

    def keep(self, text: bytes = b"at last") -> None:
        for promise in tuple(self.made):  # the server goes on meanwhile, and may ask for another one
            promise.answer(Response(HTTPStatus.OK, text))

    @property
    def abandoned(self) -> int:
        return sum(promise.abandoned for promise in self.made)


@pytest.fixture
def promises() -> Promises:
    return Promises()


class Traced(Deferred):
    """One of which it can be told whether it is still there."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def nobody_collects() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nobody_collects")
@pytest.mark.parametrize("patience", [30.0, 0.05])
def test_a_promise_is_gone_with_its_answer_without_a_collection(serve: Serve, patience: float) -> None:
    """It holds a page. The collector comes seldom where little garbage is made, and never to what a reload froze."""
    made: list[weakref.ref[Traced]] = []
    kept: list[Traced] = []

    def handler(request: Request) -> Deferred:
        promise = Traced(patience, LATE)
        made.append(weakref.ref(promise))
        if request.path == "/kept":
            kept.append(promise)
        return promise

    client = serve(handler).client()
    client.send(GET % b"kept")
    wait_until(lambda: bool(made))
    if patience > 1.0:
        kept.pop().answer(Response(HTTPStatus.OK, b"at last"))
    assert client.response()[0] == (HTTPStatus.OK if patience > 1.0 else LATE.status)
    kept.clear()
    wait_until(lambda: made[0]() is None)


def waiting(running: Running, promises: Promises, request: bytes = GET % b"later") -> Client:
    before = len(promises.made)
    client = running.client()
    client.send(request)
    wait_until(lambda: len(promises.made) == before + 1)
    return client


def test_the_answer_arrives_from_another_thread_and_nothing_waits_meanwhile(serve: Serve, promises: Promises) -> None:
    running = serve(promises)
    clients = [waiting(running, promises) for _ in range(10)]
    half_closed = waiting(running, promises)
    half_closed.sock.shutdown(socket.SHUT_WR)
    for _ in range(10):
        assert running.get("/now")[2] == b"/now"
    threading.Thread(target=promises.keep).start()
    assert [client.response()[2] for client in clients] == [b"at last"] * 10
    assert half_closed.rest().endswith(b"at last")
    assert running.get("/at-once")[2] == b"here"


def test_answers_keep_their_order_on_a_connection(serve: Serve, promises: Promises) -> None:
    running = serve(promises)
    requests = b"".join(GET % path for path in (b"now", b"later", b"then", b"later2"))
    client = waiting(running, promises, requests + b"GET /end HTTP/1.0\r\n\r\n")
    promises.keep()
    wait_until(lambda: len(promises.made) == 2)
    promises.keep(b"again")
    answers = client.rest().split(b"HTTP/1.1 200 OK\r\n")
    assert [each.partition(b"\r\n\r\n")[2] for each in answers[1:]] == [
        b"/now",
        b"at last",
        b"/then",
        b"again",
        b"/end",
    ]


def test_a_late_promise_is_answered_as_late_and_the_connection_lives_on(serve: Serve) -> None:
    promises = Promises(patience=0.1)
    running = serve(promises)
    client = running.client()
    client.send(GET % b"later")
    status, _, text = client.response()
    assert (status, text) == (504, b"later than late")
    assert promises.abandoned == 1
    promises.keep(b"must not be shown")
    client.send(GET % b"now")
    assert client.response()[2] == b"/now"


def test_head_and_the_last_request_of_a_connection_are_answered_as_ever(serve: Serve, promises: Promises) -> None:
    running = serve(promises)
    head = waiting(running, promises, b"HEAD /later HTTP/1.1\r\nHost: n\r\n\r\n")
    last = waiting(running, promises, b"GET /later HTTP/1.0\r\n\r\n")
    promises.keep()
    answer = http.client.HTTPResponse(head.sock, method="HEAD")
    answer.begin()
    assert (answer.getheader("Content-Length"), answer.read()) == ("7", b"")
    assert last.rest().endswith(b"\r\n\r\nat last")


def test_a_client_that_breaks_off_leaves_its_place_and_work_for_it_stops(serve: Serve, promises: Promises) -> None:
    running = serve(promises)
    client = waiting(running, promises)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # with a reset
    wait_until(lambda: (running.server.connections, promises.abandoned) == (0, 1))
    promises.keep()
    assert running.get("/now")[2] == b"/now"


def test_a_client_that_keeps_sending_while_it_waits_is_not_read_without_end(serve: Serve, promises: Promises) -> None:
    running = serve(promises)
    client = waiting(running, promises)
    assert client.flood(GET % b"now" * 1000)
    assert running.get("/now")[2] == b"/now"
    promises.keep()
    assert client.sock.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_stopping_answers_those_who_wait(serve: Serve, promises: Promises) -> None:
    running = serve(promises)
    client = waiting(running, promises)
    stopper = threading.Thread(target=running.server.stop)
    stopper.start()
    answer = client.rest()
    stopper.join()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"Connection: close" in answer
    promises.keep()  # after the end: it must do no harm
    assert promises.abandoned == 1
