"""h11 as the judge of our HTTP: what it writes is read alike, and what the strict readers take it takes alike.

A proxy or a server that reads a message in another way than its neighbour is how requests are smuggled. Whatever our
server takes for a request, another well-kept parser must take for the same one, with the same bytes left over.
"""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.lib.http_answers import AnswerBounds, AnswerReader, HttpAnswer, HttpError
from exporters.http_messages import RefusedError, Request, RequestReader

LENIENT = AnswerBounds(body=64 * 1024)
PLAIN = AnswerBounds(body=64 * 1024, head=8 * 1024, plain=True)
QUESTION = h11.Request(method="GET", target="/x", headers=[("Host", "h")])

tokens = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=8).map(lambda name: f"x-{name}")
values = st.text("abc xyz;,=\"'", max_size=12).map(str.strip)


def served(status: int, headers: list[tuple[str, str]], body: bytes, framing: str, cuts: list[int]) -> bytes:
    """An answer as h11's server writes it."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"GET /x HTTP/1.%d\r\nHost: h\r\n\r\n" % (framing != "close"))
    assert isinstance(server.next_event(), h11.Request)
    length = [("Content-Length", str(len(body)))] if framing == "length" else []
    written = server.send(h11.Response(status_code=status, headers=[*headers, *length]))
    assert written is not None
    edges = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    for start, end in pairwise(edges):
        written += server.send(h11.Data(data=body[start:end])) or b""
    return written + (server.send(h11.EndOfMessage()) or b"")


@given(
    st.sampled_from([200, 202, 400, 401, 503]), st.lists(st.tuples(tokens, values), max_size=5),
    st.binary(max_size=300), st.sampled_from(["length", "chunked", "close"]), st.lists(st.integers(0, 300), max_size=5),
)  # fmt: skip
def test_what_h11_writes_is_read_alike(
    status: int, headers: list[tuple[str, str]], body: bytes, framing: str, cuts: list[int]
) -> None:
    sent = served(status, headers, body, framing, cuts)
    reader = AnswerReader(LENIENT)
    answer = reader.feed(sent) or reader.hang_up()
    assert (answer.status, answer.body, answer.cut) == (status, body, False)
    assert answer.closes == (framing == "close")
    assert {name: answer.headers[name] for name, _ in reversed(headers)} == dict(reversed(headers))


def judged_answer(data: bytes) -> tuple[int, bytes] | None:
    """Status and body, where h11 takes it for an answer that is whole."""
    client = h11.Connection(h11.CLIENT)
    client.send(QUESTION)
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    status, body = 0, b""
    try:
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body
            elif event is h11.NEED_DATA:
                return None
    except h11.RemoteProtocolError:
        return None


ANSWER_PIECES = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200\r\n", b"Content-Length: 3\r\n",
    b"content-length:3\r\n", b"Content-Length: 03\r\n", b"Content-Length: 3, 3\r\n", b"Content-Length : 3\r\n",
    b" 4\r\n", b"\r\n", b"\n", b"\r", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding : chunked\r\n",
    b"X: a\r\n", b"X\r\n", b": a\r\n", b"\0", b"3\r\nabc\r\n", b"0\r\n\r\n", b"abc", b"\x0b",
    b"Connection: close\r\n",
]  # fmt: skip
answers = st.lists(st.sampled_from(ANSWER_PIECES), max_size=6).map(
    lambda pieces: b"HTTP/1.1 200 OK\r\n" + b"".join(pieces)
)


def read_answer(data: bytes) -> HttpAnswer | None:
    try:
        return AnswerReader(PLAIN).feed(data)
    except HttpError:
        return None


@settings(max_examples=300)
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\n0\r\n\r\n\r\n\n")  # h11 ends the head at the lone line feed
@given(answers | st.binary(max_size=200))
def test_what_agents_take_from_each_other_h11_takes_alike_or_refuses(data: bytes) -> None:
    """Never in another way: a header line that is none, which h11 refuses, is passed over, and moves no end."""
    answer, judged = read_answer(data), judged_answer(data)
    if answer is not None and answer.status == 200 and judged is not None:
        assert (answer.status, answer.body) == judged


def judged_request(data: bytes) -> tuple[str, str, bytes, bytes] | None:
    """Method, target, body and what is left over, where h11 takes it for a request that is whole.

    It does not pass over empty lines before a request, as a server should (RFC 9112, 2.2): they are not shown to it.
    """
    server = h11.Connection(h11.SERVER)
    server.receive_data(data.lstrip(b"\r\n"))
    request, body = None, b""
    try:
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                left = server.trailing_data[0]
                return request.method.decode(), request.target.decode(), body, left
            elif event in (h11.NEED_DATA, h11.PAUSED):
                return None
    except h11.RemoteProtocolError:
        return None


REQUEST_PIECES = [
    b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\n", b"POST /a?b=c HTTP/1.0\r\n", b"Host: h\r\n", b"Host: i\r\n",
    b"host : h\r\n", b"Content-Length: 3\r\n", b"Content-Length: 4\r\n", b"Content-Length: +3\r\n",
    b"Content-Length: 3 3\r\n", b"Content-Length: 3,3\r\n", b"Content-Length : 3\r\n", b"Content-Length: 0x3\r\n",
    b"Content-Length:\t3\r\n", b"Content-Length: 3\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n", b" folded\r\n", b"\tfolded\r\n",
    b"X: a\rb\r\n", b"X: a\x00b\r\n", b"X\r\n", b": a\r\n", b"\r\n", b"\n", b"\r", b"abc", b"3\r\nabc\r\n",
    b"0\r\n\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"\xc3\xbc: a\r\n", b"X: \xff\r\n",
]  # fmt: skip
requests = st.lists(st.sampled_from(REQUEST_PIECES), min_size=1, max_size=9).map(b"".join) | st.lists(
    st.sampled_from(REQUEST_PIECES), max_size=7
).map(lambda pieces: b"POST /a HTTP/1.1\r\nHost: h\r\n" + b"".join(pieces))


def read_request(data: bytes) -> tuple[Request, int] | None:
    """The first request, and how many bytes are left over."""
    reader = RequestReader()
    reader.feed(data)
    try:
        request = reader.next()
    except RefusedError:
        return None
    return None if request is None else (request, reader.held)


@settings(max_examples=1000)
@given(requests)
def test_what_our_server_takes_for_a_request_h11_takes_for_the_same(data: bytes) -> None:
    found = read_request(data)
    if found is None:
        return
    request, left = found
    judged = judged_request(data)
    assert judged is not None, "h11 refuses it, or waits for more"
    method, target, body, rest = judged
    assert (request.method, request.path, request.body, left) == (method, target.partition("?")[0], body, len(rest))


@pytest.mark.parametrize(
    "data",
    [
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\nHost: h\n\n", b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
    ],
)  # fmt: skip
def test_a_good_request_is_accepted_by_both(data: bytes) -> None:
    """So that the test above does not pass by refusing everything."""
    assert read_request(data) is not None
    assert judged_request(data) is not None
