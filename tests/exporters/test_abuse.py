"""Rude clients cost themselves: a scraper is served all the while."""

import os
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from exporters.http_messages import Request, Response
from tests.exporters.conftest import Serve
from tests.waiting import wait_until

PAGE = b"x" * (4 * 1024 * 1024)
GET = b"GET / HTTP/1.1\r\nHost: n\r\n\r\n"
pytestmark = pytest.mark.usefixtures("quiet")


def page(request: object) -> Response:
    return Response(HTTPStatus.OK, PAGE)


def resident() -> int:
    """Resident memory of this process, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nHost:"])
def test_three_hundred_clients_without_a_whole_request_do_not_lock_others_out(serve: Serve, said: bytes) -> None:
    running = serve()
    threads = threading.active_count()
    silent = [running.client() for _ in range(300)]
    for client in silent:
        with suppress(ConnectionError):
            client.send(said)
    assert running.get("/a")[2] == b"GET /a"
    assert running.server.connections <= 64
    assert threading.active_count() == threads
    assert sum(client.is_cut_off() for client in silent) >= 300 - 64


def test_a_flood_of_clients_is_reported_and_none_is_evicted_for_those_that_left(serve: Serve) -> None:
    released, begun = threading.Event(), threading.Event()
    told: list[bool] = []

    def keep(request: Request) -> Response:
        """Clients gather in the queue until the event is set."""
        if request.path == "/keep":
            begun.set()
            released.wait(20)
        return page(request)

    running = serve(keep, max_connections=3, press=told.append)
    running.client().send(b"GET /keep HTTP/1.1\r\nHost: node\r\n\r\n")
    assert begun.wait(20)
    waiting = [running.client() for _ in range(2)]
    for _ in range(100):
        running.client().sock.close()
    released.set()
    wait_until(lambda: running.server.connections == 3)
    assert running.get()[2] == PAGE  # which was behind all of them in the queue, and is the fourth
    assert [each.is_cut_off() for each in waiting].count(True) == 1
    wait_until(lambda: told == [True, False])


def test_dripping_bytes_does_not_save_a_place(serve: Serve) -> None:
    running = serve(max_connections=2)
    dripping = running.client()
    dripping.send(b"GET ")
    wait_until(lambda: running.server.connections == 1)
    polite = running.client()
    wait_until(lambda: running.server.connections == 2)
    dripping.send(b"/")
    running.client()
    wait_until(dripping.is_cut_off)
    polite.send(GET)
    assert polite.response()[0] == 200


def test_an_idle_client_is_cut_off_and_within_a_request_it_gets_a_timeout_answer(serve: Serve) -> None:
    running = serve(idle_timeout=0.1, request_timeout=0.1)
    assert running.client().rest() == b""
    client = running.client()
    client.send(GET)
    assert client.response()[0] == 200
    assert client.rest() == b""
    assert running.exchange(b"POST / HTTP/1.0\r\nContent-Length: 9\r\n\r\nhalf").startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("drop", [b"a", b"\r\n"])
def test_a_slow_loris_is_cut_off_counting_from_its_first_byte(serve: Serve, drop: bytes) -> None:
    client = serve(request_timeout=0.2, idle_timeout=60.0).client()
    start = time.monotonic()
    while not client.is_cut_off():
        assert time.monotonic() - start < 2.0
        try:
            client.sock.send(drop)
        except ConnectionError:
            break
        time.sleep(0.02)
    assert time.monotonic() - start >= 0.2


def test_a_client_that_never_reads_is_cut_off_at_the_write_timeout(serve: Serve) -> None:
    running = serve(page, write_timeout=0.2)
    client = running.client(receive_buffer=4096)
    client.send(GET)
    wait_until(lambda: running.server.connections == 1)
    wait_until(lambda: running.server.connections == 0)
    assert len(client.rest()) < len(PAGE)


def test_clients_that_never_read_share_the_page_instead_of_copying_it(serve: Serve) -> None:
    running = serve(page)
    before = resident()
    for _ in range(40):
        running.client(receive_buffer=4096).send(GET * 20)
    wait_until(lambda: running.server.connections == 40)
    assert running.get()[0] == 200
    assert resident() - before < 16 * 1024 * 1024  # 40 copies would be 160 MiB


def test_slow_readers_of_ever_new_pages_keep_few_of_them_in_memory(serve: Serve) -> None:
    """Each reads another sample's page: together they must not keep sixty of them."""
    asked = []

    def handler(request: Request) -> Response:
        asked.append(request)
        return Response(HTTPStatus.OK, b"%d" % len(asked) + PAGE[:-2])

    running = serve(handler)
    before = resident()
    readers = [running.client(receive_buffer=4096) for _ in range(60)]
    for number, reader in enumerate(readers):
        reader.send(GET)
        wait_until(lambda number=number: len(asked) == number + 1)
    assert running.get()[0] == 200
    assert resident() - before < 48 * 1024 * 1024  # all of them would be 240 MiB
    assert readers[0].is_cut_off()  # it keeps the oldest
    assert not readers[-1].is_cut_off()


def test_the_client_that_has_cost_less_comes_first(serve: Serve) -> None:
    """However many expensive clients there are, between two of their answers everybody cheap has a turn."""
    now = [100.0]
    order: list[str] = []
    all_have_asked = threading.Event()

    def handler(request: Request) -> Response:
        order.append(request.path)
        all_have_asked.wait(5.0)
        now[0] += 0.01 if request.path == "/dear" else 0.0
        return Response(HTTPStatus.OK, b"")

    running = serve(handler, clock=lambda: now[0])
    clients = [running.client() for _ in range(9)]
    for client in clients[1:]:
        client.send(GET.replace(b"/ ", b"/dear ") * 20)
    clients[0].send(GET.replace(b"/ ", b"/cheap ") * 19 + b"GET /cheap HTTP/1.0\r\n\r\n")
    all_have_asked.set()
    assert clients[0].rest().count(b"200 OK") == 20
    dear_before = len(order[: len(order) - 1 - order[::-1].index("/cheap")]) - 19
    assert dear_before <= 20 + len(clients)  # turn by turn, and not eight for one


@pytest.mark.parametrize(
    ("rude", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, b"400"),
        (b"GET /" + b"a" * 100_000, b"414"),
        (b"GET / HTTP/1.0\r\n" + b"A: aaaa\r\n" * 20_000, b"431"),
        (b"POST / HTTP/1.0\r\nContent-Length: 999999\r\n\r\n" + b"x" * 200_000, b"413"),
        (b"BREW / HTTP/1.0\r\n\r\n", b"501"),
    ],
)
def test_a_rude_request_is_refused_and_the_refusal_arrives(serve: Serve, rude: bytes, status: bytes) -> None:
    running = serve()
    assert running.exchange(rude).startswith(b"HTTP/1.1 " + status)
    assert running.get("/a")[0] == 200
