"""Servers of every temper against the one client: each exchange ends in time, and says what was the matter.

What is no answer at all is refused in test_answers.py.
"""

import contextlib
import errno
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.lib.http_answers import HttpError, HttpFault
from agent.lib.http_link import HttpRequest

TIME = 0.25
"""Seconds that an exchange may take here."""

GARBAGE, TIMEOUT, UNREACHABLE = HttpFault.GARBAGE, HttpFault.TIMEOUT, HttpFault.UNREACHABLE
Outcome = HttpFault | tuple[int, bytes]
Do = Callable[[socket.socket], None]

OK = b"HTTP/1.1 200 OK\r\n"
TWO = OK + b"Content-Length: 2\r\n\r\nhi"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def says(data: bytes, hangs_up: bool = False) -> Do:
    def treat(held: socket.socket) -> None:
        held.sendall(data)
        if hangs_up:
            held.shutdown(socket.SHUT_WR)

    return treat


def goes_on(first: bytes, more: bytes, pause: float = 0.0) -> Do:
    """Without end, until the client has had enough."""

    def treat(held: socket.socket) -> None:
        held.sendall(first)
        with contextlib.suppress(OSError):
            while True:
                time.sleep(pause)
                held.sendall(more)

    return treat


def resets(after: bytes) -> Do:
    def treat(held: socket.socket) -> None:
        held.sendall(after)
        time.sleep(0.05)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        held.close()

    return treat


def well(held: socket.socket, number: int) -> None:
    held.sendall(TWO)


def silent(held: socket.socket, number: int) -> None:
    """Never answer."""


TABLE: dict[str, tuple[Do, Outcome]] = {
    "answers": (says(TWO), (200, b"hi")),
    "never answers": (says(b""), TIMEOUT),
    "hangs up": (says(b"", hangs_up=True), UNREACHABLE),
    "resets": (resets(b""), UNREACHABLE),
    "resets in its head": (resets(OK), UNREACHABLE),
    "resets in its body": (resets(TWO[:-1]), UNREACHABLE),
    "drips": (goes_on(b"", b"H", 0.03), GARBAGE),
    "drips its status": (goes_on(b"HTTP/1.1 2", b"0", 0.03), TIMEOUT),
    "drips its head": (goes_on(OK, b"x", 0.03), TIMEOUT),
    "drips its body": (goes_on(OK + b"Content-Length: 999\r\n\r\n", b"x", 0.03), TIMEOUT),
    "headers without end": (goes_on(OK, b"a: b\r\n" * 500), GARBAGE),
    "one header without end": (goes_on(OK + b"a: ", b"b" * 4000), GARBAGE),
    "a body without end": (goes_on(OK + b"\r\n", b"x" * 4000), (200, b"x" * 65536)),
    "chunks without end": (goes_on(CHUNKED, b"1\r\nx\r\n" * 500), (200, b"x" * 65536)),
    "too short, and hangs up": (says(OK + b"Content-Length: 3\r\n\r\nhi", True), UNREACHABLE),
    "too short, and waits": (says(OK + b"Content-Length: 3\r\n\r\nhi"), TIMEOUT),
    "too long": (says(TWO + b"!"), (200, b"hi")),
    "no length, and hangs up": (says(OK + b"\r\nhi", hangs_up=True), (200, b"hi")),
    "no length, and waits": (says(OK + b"\r\nhi"), TIMEOUT),
    "chunks": (says(CHUNKED + b"2;x=y\r\nhi\r\n0\r\na: b\r\n\r\n"), (200, b"hi")),
    "chunks, and hangs up": (says(CHUNKED + b"2\r\nhi\r\n", hangs_up=True), UNREACHABLE),
    "coded": (says(OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi"), (200, b"hi")),
    "both lengths": (says(CHUNKED[:-2] + b"Content-Length: 1\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), (200, b"hi")),
    "bare line feeds": (says(TWO.replace(b"\r\n", b"\n")), (200, b"hi")),
    "two answers": (says(TWO + TWO.replace(b"hi", b"ho")), (200, b"hi")),
    "continue": (says(b"HTTP/1.1 100 Continue\r\n\r\n" + TWO), (200, b"hi")),
    "continue without end": (goes_on(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), GARBAGE),
    "upgrades": (says(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), GARBAGE),
    "no content": (says(b"HTTP/1.1 204 No Content\r\n\r\n"), (204, b"")),
    "redirects": (says(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"), (307, b"")),
    "refuses": (says(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"), (503, b"busy")),
}


def outcome(one: Any, within: float = TIME) -> Outcome:
    try:
        answer = one.ask(within)
    except HttpError as error:
        return error.fault
    return answer.status, answer.body


@pytest.mark.parametrize("what", TABLE)
def test_an_exchange_ends_in_time_with_an_answer_or_the_reason(serve: Any, asker: Any, what: str) -> None:
    do, expected = TABLE[what]
    server = serve(lambda held, number: do(held))
    assert outcome(asker(server.port), TIME if expected is TIMEOUT else 10.0) == expected


@pytest.mark.parametrize("what", [what for what in TABLE if what not in ("never answers", "hangs up", "resets")])
def test_after_whatever_came_the_next_answer_is_the_one_to_the_next_question(serve, asker, what: str) -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
    server = serve(lambda held, number: (TABLE[what][0] if number == 1 else says(good))(held))
    one = asker(server.port)
    outcome(one)
    assert outcome(one, 10.0) == (200, b"good")
    assert len(server.questions) == 2


def test_an_answer_that_comes_before_its_question_is_not_accepted(serve: Any, asker: Any) -> None:
    early = threading.Event()

    def treat(held: socket.socket, number: int) -> None:
        held.sendall(TWO)
        if number == 1:
            early.wait(10)
            held.sendall(TWO.replace(b"hi", b"ho"))
            early.clear()

    server = serve(treat)
    one = asker(server.port)
    assert outcome(one, 10.0) == (200, b"hi")
    early.set()
    while early.is_set():
        time.sleep(0.01)
    assert outcome(one, 10.0) == (200, b"hi")
    assert server.connections == 2


# -- Deadlines --------------------------------------------------------------------------------------------------------
def test_silence_may_be_bounded_more_tightly_than_the_whole(serve: Any, asker: Any) -> None:
    slow = serve(lambda held, number: goes_on(OK + b"Content-Length: 10\r\n\r\n", b"x", 0.05)(held))
    assert outcome(asker(slow.port, silence=2.0), 10.0) == (200, b"x" * 10)
    late = serve(lambda held, number: time.sleep(1.0) or held.sendall(TWO))
    with pytest.raises(HttpError, match=r"no response within 0\.1 s") as told:
        asker(late.port, silence=0.1).ask(60.0)
    with pytest.raises(HttpError, match="no time was left to ask"):
        asker(late.port).ask(-0.2)
    assert told.value.fault is TIMEOUT


def test_what_is_known_of_an_answer_that_does_not_end_is_reported(serve: Any, asker: Any) -> None:
    for do in (says(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nbu"), says(OK + b"Content-Length: 9\r\n\r\n", True)):
        server = serve(lambda held, number, do=do: do(held))
        with pytest.raises(HttpError) as told:
            asker(server.port).ask(TIME)
        assert told.value.head.status in (200, 503)
    with pytest.raises(HttpError) as told:
        asker(serve(silent).port).ask(TIME)
    assert told.value.head is None


@pytest.mark.parametrize("within", [-1.0, TIME])
def test_a_large_request_to_a_server_that_accepts_none_ends_in_time(serve: Any, asker: Any, within: float) -> None:
    server = serve(silent, wrap=lambda held: time.sleep(2 * TIME) or held)
    large = HttpRequest("POST", "/", body=b"x" * 50_000_000)
    with pytest.raises(HttpError) as told:
        asker(server.port).ask(within, large)
    assert told.value.fault is TIMEOUT


def test_an_exchange_is_broken_off_from_another_thread_and_not_begun_again(serve: Any, asker: Any) -> None:
    asked = threading.Event()

    def treat(held: socket.socket, number: int) -> None:
        if number == 1:
            held.sendall(TWO)
        else:
            asked.set()

    server = serve(treat)
    one = asker(server.port)
    assert outcome(one) == (200, b"hi")
    found: list[Outcome] = []
    waiting = threading.Thread(target=lambda: found.append(outcome(one, 60.0)))
    waiting.start()
    assert asked.wait(10)
    one.abort()
    waiting.join(10)
    assert found == [UNREACHABLE]
    assert server.connections == 1


# -- Connections ------------------------------------------------------------------------------------------------------
def test_a_connection_is_kept_and_one_that_died_meanwhile_is_reopened_once(serve: Any, asker: Any) -> None:
    server = serve(lambda held, number: says(TWO, hangs_up=number == 3)(held))
    one = asker(server.port)
    assert [outcome(one) for _ in range(5)] == [(200, b"hi")] * 5
    assert server.connections == 2
    # The server may have closed it for being idle at the moment that the question was on its way.
    server = serve(lambda held, number: says(TWO)(held) if number in (1, 3) else resets(b"")(held))
    one = asker(server.port)
    assert [outcome(one) for _ in range(3)] == [(200, b"hi"), (200, b"hi"), UNREACHABLE]
    assert len(server.questions) == 5  # the last was asked on the kept connection, and on a new one


def test_a_kept_connection_that_breaks_off_in_an_answer_is_reported_as_such(serve: Any, asker: Any) -> None:
    server = serve(lambda held, number: (says(TWO) if number == 1 else resets(OK))(held))
    one = asker(server.port)
    outcome(one)
    with pytest.raises(HttpError) as told:
        one.ask()
    assert told.value.kept
    assert len(server.questions) == 2


def test_the_next_address_is_tried_where_one_is_closed_up_to_the_last(serve: Any, asker: Any, monkeypatch: Any) -> None:
    server = serve(well)
    resolve(monkeypatch, server.port, "127.0.0.3", "::1", "127.0.0.1")
    assert outcome(asker(server.port, host="many.example"), 10.0) == (200, b"hi")
    resolve(monkeypatch, server.port, "127.0.0.3", "127.0.0.4")
    with pytest.raises(HttpError, match="Connection refused"):
        asker(server.port, host="many.example").ask()
    resolve(monkeypatch, 1, *(f"224.0.{n // 256}.{n % 256}" for n in range(1200)))  # no TCP to a group
    assert outcome(asker(1, host="many.example"), 60.0) is UNREACHABLE


def test_an_address_that_swallows_everything_leaves_time_for_the_next(serve: Any, asker: Any, monkeypatch: Any) -> None:
    server = serve(well)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.2", server.port))
        full.listen(0)
        for _ in range(4):  # more than it takes: what comes after them is not even refused
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", server.port))
        resolve(monkeypatch, server.port, "127.0.0.2", "127.0.0.1")
        assert outcome(asker(server.port, host="many.example"), 2.0) == (200, b"hi")


def test_an_address_that_did_not_answer_in_time_is_not_the_first_one_next_time(asker: Any, monkeypatch: Any) -> None:
    tried: list[str] = []
    resolve(monkeypatch, 1, "::1", "127.0.0.1")
    monkeypatch.setattr(socket.socket, "connect_ex", lambda _, place: tried.append(place[0]) or errno.EINPROGRESS)
    client = asker(1, host="many.example")
    assert [outcome(client, 0.0) for _ in range(3)] == [TIMEOUT] * 3
    assert tried == ["::1", "127.0.0.1", "::1"]


def resolve(monkeypatch: Any, port: int, *addresses: str) -> None:
    found = [(socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, port)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: found)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70 + ".example"])
def test_an_unknown_or_invalid_name_is_reported(asker: Any, host: str) -> None:
    with pytest.raises(HttpError, match=host[:20]) as told:
        asker(1, host=host).ask()
    assert told.value.fault is UNREACHABLE


def test_an_ipv6_address_is_asked_with_brackets(serve: Any, asker: Any, monkeypatch: Any) -> None:
    server = serve(well)
    resolve(monkeypatch, server.port, "127.0.0.1")  # not every machine has IPv6
    assert outcome(asker(server.port, host="[::1]")) == (200, b"hi")
    assert b"\r\nHost: [::1]:%d\r\n" % server.port in server.questions[0]


def test_a_question_is_as_it_should_be(serve: Any, asker: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame\n")
    server = serve(well)
    asker(server.port, bearer_token_file=str(token)).ask()
    assert server.questions == [
        b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: coldplate\r\nAccept-Encoding: identity\r\n"
        b"Accept: application/json\r\nAuthorization: Bearer sesame" % server.port
    ]
    assert HttpRequest("POST", "/", body=b"{}").written("h", {}).endswith(b"\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("path", ["", "x", "/a b", "/a\r\nX: y", "/\u00fc", "/\x7f", "http://elsewhere/"])
def test_a_path_that_would_be_more_than_one_is_not_sent(serve: Any, asker: Any, path: str) -> None:
    server = serve(well)
    with pytest.raises(HttpError):
        asker(server.port).ask(TIME, HttpRequest("GET", path))
    assert server.questions == []


def test_what_a_server_repeats_of_path_and_login_is_masked(serve: Any, asker: Any, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cr3t-password\n")
    one = asker(serve(well).port, username="u", password_file=str(tmp_path / "password"))
    one.ask()
    assert "s3cr3t" not in one.masked("no s3cr3t-password, dTpzM2NyM3QtcGFzc3dvcmQ=, here")


def test_a_file_that_cannot_be_read_is_named_before_anything_is_sent(serve: Any, asker: Any, tmp_path: Path) -> None:
    server = serve(well)
    with pytest.raises(HttpError, match=r"cannot read the credentials: .*nowhere") as told:
        asker(server.port, username="u", password_file=str(tmp_path / "nowhere")).ask()
    assert told.value.fault is HttpFault.UNREADABLE
    assert server.connections == 0
