"""Answers of HTTP/1.1 as data: what is taken, what is refused, and never anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lib.http_answers import MOST_HEADERS, AnswerBounds, AnswerReader, HttpAnswer, HttpError, HttpFault

BODY, HEAD = 100, 4096
LENIENT, PLAIN = AnswerBounds(BODY, HEAD), AnswerBounds(BODY, HEAD, plain=True)


def reply(*headers: str, body: bytes = b"", status: str = "HTTP/1.1 200 OK", end: str = "\r\n") -> bytes:
    return "".join(f"{line}{end}" for line in (status, *headers, "")).encode("latin-1") + body


def whole(data: bytes, bounds: AnswerBounds = LENIENT) -> HttpAnswer:
    """The answer of a server that says this and hangs up."""
    reader = AnswerReader(bounds)
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
    reader, answers, rest = AnswerReader(LENIENT), [], sent
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
        (reply(body=b"to the end"), b"to the end"),
        (reply("Content-Length: x", body=b"to the end"), b"to the end"),
        (reply("Content-Length: -1", body=b"to the end"), b"to the end"),
        (reply("Content-Length : 2", body=b"to the end"), b"to the end"),
        (reply("Content-Length: 2", body=b"hiHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), b"hi"),
        (reply("Content-Length: 2", "Content-Length: 4", body=b"hi"), b"hi"),
        (reply("Content-Length: 9", "Transfer-Encoding: chunked", body=b"2\r\nhi\r\n0\r\n\r\n"), b"hi"),
        (reply("Content-Length: 2", "Transfer-Encoding: gzip", body=b"hi"), b"hi"),
        (reply("Content-Length: 2", "Connection: keep-alive, Close", body=b"hi"), b"hi"),
        (reply("Content-Length: 2", "Connection: keep-alive", "Connection: close", body=b"hi"), b"hi"),
        (reply("Content-Length: 2", body=b"hi", status="HTTP/1.0 200 OK"), b"hi"),
    ],
)
def test_after_whatever_leaves_a_doubt_where_it_ended_the_connection_is_not_used_again(
    sent: bytes, body: bytes
) -> None:
    answer = whole(sent)
    assert (answer.body, answer.closes) == (body, True)


def test_a_server_of_http_1_0_may_keep_the_connection() -> None:
    assert not whole(reply("Content-Length: 0", "Connection: Keep-Alive", status="HTTP/1.0 200 OK")).closes


def test_of_two_headers_with_one_name_the_first_is_kept() -> None:
    answer = whole(reply("Location: /a", "Location: /b", "Date: now", "X: a", "\tb", "Content-Length: 0"))
    assert answer.headers == {"location": "/a", "date": "now", "x": "a b", "content-length": "0"}


@pytest.mark.parametrize(
    "sent",
    [
        reply(f"Content-Length: {BODY + 1}", body=b"x" * (BODY + 1)),
        reply("Content-Length: 99999999999", body=b"x" * (BODY + 1)),
        reply("Transfer-Encoding: chunked", body=b"ffffffff\r\n" + b"x" * (BODY + 1)),
        reply(body=b"x" * 10_000),
    ],
)
def test_a_body_that_is_too_long_is_cut_there(sent: bytes) -> None:
    answer = AnswerReader(LENIENT).feed(sent)
    assert answer == HttpAnswer(200, answer.headers if answer else {}, b"x" * BODY, closes=True, cut=True)


GARBAGE = [
    b"SSH-2.0-OpenSSH\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"\x15\x03\x01", b"H" * 10,
    b"HTTP/1.1 200OK\r\n\r\n", b"HTTP/1.1 099 OK\r\n\r\n", b"<html>hello</html>", b"\r\n" + reply("Content-Length: 0"),
    reply(*["a: b"] * (MOST_HEADERS + 1)), b"HTTP/1.1 200 OK\r\n" + b"a: " + b"b" * HEAD,
]  # fmt: skip


@pytest.mark.parametrize("bounds", [LENIENT, PLAIN])
@pytest.mark.parametrize("sent", GARBAGE, ids=lambda sent: repr(sent[:30]))
def test_what_is_not_an_answer_is_refused(sent: bytes, bounds: AnswerBounds) -> None:
    with pytest.raises(HttpError) as told:
        AnswerReader(bounds).feed(sent)
    assert told.value.fault is HttpFault.GARBAGE


@pytest.mark.parametrize(
    "chunks",
    [b"x\r\n", b"-1\r\n", b"0x5\r\nhello\r\n", b"\r\n", b"5 5\r\n", b"2\r\nhixx\r\n", b"1" * 17 + b"\r\n",
     b"5;" + b"e" * 2000, b"0\r\n" + b"a: b\r\n" * (MOST_HEADERS + 1)],
    ids=lambda chunks: repr(chunks[:12]),
)  # fmt: skip
def test_chunks_that_do_not_say_their_size_are_refused_and_the_status_stands(chunks: bytes) -> None:
    reader = AnswerReader(LENIENT)
    with pytest.raises(HttpError) as told:
        reader.feed(reply("Transfer-Encoding: chunked", body=chunks))
    assert told.value.fault is HttpFault.GARBAGE
    assert reader.head is not None and reader.head.status == 200


@pytest.mark.parametrize(
    "sent",
    [
        reply(), reply("Content-Length: x"), reply("Content-Length: -1"), reply("Content-Length : 1", body=b"x"),
        reply("Content-Length: 1", "content-length: 1", body=b"x"), reply("Content-Length: 1", " 2", body=b"x"),
        reply("Content-Length: 1", "Content-Length : 1", body=b"x"),
        reply(f"Content-Length: {BODY + 1}"), reply("Content-Length: 99999999999999999999"),
        reply("Transfer-Encoding: chunked", body=b"1\r\nx\r\n0\r\n\r\n"),
        reply("Transfer-Encoding: chunked", "Content-Length: 1", body=b"x"),
        reply("Content-Encoding: gzip", "Content-Length: 1", body=b"x"),
        reply("Content-Length: 1", body=b"xHTTP/1.1 200"),
        reply("Content-Length: 1", body=b"x", status="HTTP/1.1  200 OK"),
        reply("Content-Length: 1", body=b"x", status="HTTP/1.1 600 OK"),
    ],
    ids=lambda sent: repr(sent[:60]),
)  # fmt: skip
def test_what_is_not_an_answer_of_an_agent_is_refused(sent: bytes) -> None:
    with pytest.raises(HttpError) as told:
        AnswerReader(PLAIN).feed(sent)
    assert told.value.fault is HttpFault.GARBAGE


pieces = st.binary(max_size=40) | st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n", b"\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n\r\n",
     b"3\r\nabc\r\n", b"0\r\n\r\n", b"HTTP/1.0 404 \n\n"]
)  # fmt: skip


@pytest.mark.parametrize("bounds", [LENIENT, PLAIN])
@given(st.lists(pieces, max_size=12))
def test_any_stream_ends_in_answers_within_bounds_a_refusal_or_a_wait(
    bounds: AnswerBounds, chunks: list[bytes]
) -> None:
    reader = AnswerReader(bounds)
    try:
        answers = [*(reader.feed(chunk) for chunk in chunks), reader.hang_up()]
    except HttpError:
        return
    assert all(len(each.body) <= BODY for each in answers if each is not None)
