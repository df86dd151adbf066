"""Answers of HTTP/1.1 as data: what is taken, what is refused, and never anything else."""

import gzip
import tracemalloc
from typing import Any

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.lib.http_answers import (
    MOST_HEADERS,
    AnswerBounds,
    AnswerReader,
    HttpAnswer,
    HttpError,
    HttpFault,
    decompressed,
)
from exporters.http_messages import RefusedError, Request, RequestReader

BODY, HEAD = 100, 4096
BOUNDS = AnswerBounds(BODY, HEAD)


def reply(*headers: str, body: bytes = b"", status: str = "HTTP/1.1 200 OK", end: str = "\r\n") -> bytes:
    return "".join(f"{line}{end}" for line in (status, *headers, "")).encode("latin-1") + body


def whole(data: bytes) -> HttpAnswer:
    """The answer of a server that says this and hangs up."""
    reader = AnswerReader(BOUNDS)
    answer = reader.feed(data) or reader.hang_up()
    assert answer is not None, "the answer is not whole"
    return answer


@pytest.mark.parametrize(
    "sent",
    [
        reply("content-type: a", "CONTENT-LENGTH:  5 ", body=b"hello"),
        reply("Transfer-Encoding: chunked", body=b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"),
        reply("Transfer-Encoding: Chunked", body=b"05 \nhello\n0\n\n", end="\n"),
        reply("Content-Length: 5", body=b"hello", end="\n"),
        reply("X: a", " folded", "no header at all", "Content-Length: 5", body=b"hello"),
        reply("Content-Length: 5", body=b"hello", status="HTTP/1.1 200"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + reply("Content-Length: 5", body=b"hello"),
    ],
)
@given(st.data())
def test_an_answer_is_the_same_however_it_is_cut(sent: bytes, data: st.DataObject) -> None:
    reader, answers, rest = AnswerReader(BOUNDS), [], sent
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        answers.append(reader.feed(rest[:cut]))
        rest = rest[cut:]
    assert answers[:-1] == [None] * (len(answers) - 1)
    last = answers[-1]
    assert (last.status, last.body, last.closes, last.cut) == (200, b"hello", False, False)
    assert not reader.begun
    again = reader.feed(reply("Content-Length: 1", body=b"x"))
    assert again is not None and again.body == b"x"


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (reply("Content-Length: x", body=b"to the end"), b"to the end"),
        (reply("Content-Length: -1", body=b"to the end"), b"to the end"),
        (reply("Content-Length : 2", body=b"to the end"), b"to the end"),
        (reply("Content-Length: 2", "Transfer-Encoding: gzip", body=b"hi"), b"hi"),
        (reply("Content-Length: 2", "Connection: keep-alive, Close", body=b"hi"), b"hi"),
        (reply("Content-Length: 2", "Connection: keep-alive", "Connection: close", body=b"hi"), b"hi"),
    ],
)
def test_a_connection_is_not_used_again_after_an_answer_of_doubtful_end(sent: bytes, body: bytes) -> None:
    answer = whole(sent)
    assert (answer.body, answer.closes) == (body, True)


def test_the_first_of_two_equal_headers_counts_and_http_1_0_may_keep_alive() -> None:
    answer = whole(reply("Location: /a", "Location: /b", "Date: now", "X: a", "\tb", "Content-Length: 0"))
    assert answer.headers == {"location": "/a", "date": "now", "x": "a b", "content-length": "0"}
    assert not whole(reply("Content-Length: 0", "Connection: Keep-Alive", status="HTTP/1.0 200 OK")).closes


@pytest.mark.parametrize(
    "sent",
    [
        reply("Content-Length: 99999999999", body=b"x" * (BODY + 1)),
        reply("Transfer-Encoding: chunked", body=b"ffffffff\r\n" + b"x" * (BODY + 1)),
        reply(body=b"x" * 10_000),
    ],
)
def test_a_body_that_is_too_long_is_cut_there(sent: bytes) -> None:
    answer = AnswerReader(BOUNDS).feed(sent)
    assert answer == HttpAnswer(200, answer.headers if answer else {}, b"x" * BODY, closes=True, cut=True)


@given(st.binary(max_size=300))
def test_gzip_is_undone_and_anything_else_left_as_it_is(body: bytes) -> None:
    assert decompressed(HttpAnswer(200, body=gzip.compress(body)), 300).body == body
    plain = HttpAnswer(200, body=b"{" + body)
    assert decompressed(plain, 300) is plain


def test_no_more_of_a_gzip_body_than_its_limit_is_undone() -> None:
    bomb = HttpAnswer(200, body=gzip.compress(b"x" * 10_000_000))
    tracemalloc.start()
    answer = decompressed(bomb, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert (answer.body, answer.cut) == (b"x" * 1000, True)
    assert not decompressed(bomb, 10_000_000).cut


@pytest.mark.parametrize("body", [b"\x1f\x8b", gzip.compress(b"hello", mtime=0)[:-5], b"\x1f\x8b" + b"x" * 100])
def test_a_damaged_gzip_body_is_refused(body: bytes) -> None:
    with pytest.raises(HttpError, match="gzip") as raised:
        decompressed(HttpAnswer(200, body=body), 1000)
    assert raised.value.fault is HttpFault.GARBAGE


GARBAGE = [
    b"SSH-2.0-OpenSSH\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"\x15\x03\x01", b"H" * 10,
    b"HTTP/1.1 200OK\r\n\r\n", b"HTTP/1.1 099 OK\r\n\r\n", b"<html>hello</html>", b"\r\n" + reply("Content-Length: 0"),
    reply(*["a: b"] * (MOST_HEADERS + 1)), b"HTTP/1.1 200 OK\r\n" + b"a: " + b"b" * HEAD,
]  # fmt: skip


@pytest.mark.parametrize("sent", GARBAGE, ids=lambda sent: repr(sent[:60]))
def test_what_is_not_an_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(HttpError) as told:
        AnswerReader(BOUNDS).feed(sent)
    assert told.value.fault is HttpFault.GARBAGE


@pytest.mark.parametrize(
    "chunks",
    [b"x\r\n", b"-1\r\n", b"0x5\r\nhello\r\n", b"\r\n", b"5 5\r\n", b"2\r\nhixx\r\n", b"1" * 17 + b"\r\n",
     b"5;" + b"e" * 2000, b"0\r\n" + b"a: b\r\n" * (MOST_HEADERS + 1)],
    ids=lambda chunks: repr(chunks[:12]),
)  # fmt: skip
def test_chunks_that_do_not_say_their_size_are_refused_and_the_status_stands(chunks: bytes) -> None:
    reader = AnswerReader(BOUNDS)
    with pytest.raises(HttpError) as told:
        reader.feed(reply("Transfer-Encoding: chunked", body=chunks))
    assert told.value.fault is HttpFault.GARBAGE
    assert reader.head is not None and reader.head.status == 200


# h11 as the judge of our HTTP: what it writes is read alike, and what the strict readers take it takes alike.
QUESTION = h11.Request(method="GET", target="/x", headers=[("Host", "h")])


def judged(connection: h11.Connection, data: bytes) -> tuple[Any, bytes] | None:
    """Head and body, where h11 takes it for a message that is whole."""
    connection.receive_data(data)
    head, body = None, b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, (h11.Request, h11.Response)):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return head, body
            elif event in (h11.NEED_DATA, h11.PAUSED):
                return None
    except h11.RemoteProtocolError:
        return None


def judged_answer(data: bytes) -> tuple[int, bytes] | None:
    """Status and body, where h11 takes it for an answer that is whole."""
    client = h11.Connection(h11.CLIENT)
    client.send(QUESTION)
    client.send(h11.EndOfMessage())
    found = judged(client, data)
    return found and (found[0].status_code, found[1])


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
        return AnswerReader(BOUNDS).feed(data)
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
    found = judged(server, data.lstrip(b"\r\n"))
    return found and (found[0].method.decode(), found[0].target.decode(), found[1], server.trailing_data[0])


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
