"""A peer may send anything: what is no report is refused, and nothing else ever happens."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.rack.http import MAX_BODY, AnswerReader, HttpAnswer
from agent.rack.peer_messages import GarbageError, Report, decode, encode

GOOD = Report(1, "r12", "", "0123456789abcdef", "n1:19400", "coldplate", 1000.5, 1000, (7.5, None, 8.0), "ipmi")


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(GOOD)), **changes}).encode()


def test_a_report_is_read_as_it_was_written() -> None:
    assert decode(encode(GOOD)) == GOOD
    assert GOOD.seconds() == [(998, 7.5), (1000, 8.0)]
    assert decode(changed(later="a key of a later version")) == GOOD
    assert decode(changed(limits={"nodes_expected": 1000})).limits == {"nodes_expected": 1000}


@pytest.mark.parametrize(
    "changes",
    [
        {"watts": [-1.0]}, {"watts": [1e7]}, {"watts": [math.nan]}, {"watts": [math.inf]}, {"watts": ["1"]},
        {"watts": [1.0] * 65}, {"watts": [True]}, {"watts": None}, {"watts": {}},
        {"now": -1.0}, {"now": "soon"}, {"now": 990.0}, {"now": 1003.0}, {"last": 1e3 + 0.5}, {"last": -1},
        {"last": 10**30}, {"rack": ""}, {"rack": "r" * 300}, {"rack": None}, {"run": "short"}, {"run": "r" * 100},
        {"instance": ""}, {"instance": "n\n1"}, {"instance": "n\x00"}, {"instance": "\ud800"}, {"source": 7},
        {"source": "i\u2028pmi"}, {"job": "x\x1b[2J"}, {"version": 2}, {"version": "1"},
        {"limits": {"power_budget": 0}}, {"limits": {"power_budget": -1.0}}, {"limits": {"feeds.a": 0.0}},
        {"limits": {"nodes_expected": 1001}}, {"limits": {"nodes_expected": 1e8}},
    ],
)  # fmt: skip
def test_what_a_report_cannot_hold_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(GarbageError):
        decode(changed(**changes))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"now":1e999}', b"[" * 60_000, b'{"x":' * 10_000, b"<html>" * 100],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_report_is_refused(body: bytes) -> None:
    with pytest.raises(GarbageError):
        decode(body)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_and_raise_nothing_else(body: bytes) -> None:
    with pytest.raises(GarbageError):
        decode(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(Report.__struct_fields__), json_values, max_size=4))
def test_whatever_is_read_is_within_bounds(changes: dict[str, object]) -> None:
    try:
        report = decode(changed(**changes))
    except GarbageError:
        return
    assert all(0 <= watts <= 1e6 for _, watts in report.seconds())
    assert 0 <= report.now - report.last < 2
    assert report.instance.isprintable()
    report.instance.encode()


# -- HTTP -------------------------------------------------------------------------------------------------------------


def reply(*headers: str, body: bytes = b"", status: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (status, *headers, "")).encode("latin-1") + body


@given(st.data())
def test_an_answer_is_the_same_however_it_is_cut(data: st.DataObject) -> None:
    whole = reply("content-type: a", "CONTENT-LENGTH:  5 ", body=b"hello")
    reader, answers = AnswerReader(), []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        answers.append(reader.feed(whole[:cut]))
        whole = whole[cut:]
    assert answers[:-1] == [None] * (len(answers) - 1)
    assert answers[-1] == HttpAnswer(200, b"hello")
    assert reader.feed(reply("Content-Length: 1", "Connection: keep-alive, close", body=b"x")) == HttpAnswer(
        200, b"x", True
    )


def test_a_body_of_another_status_is_left_unread() -> None:
    assert AnswerReader().feed(reply(status="HTTP/1.1 301 Moved", body=b"")) == HttpAnswer(301, closes=True)
    assert AnswerReader().feed(reply("Transfer-Encoding: chunked", status="HTTP/1.1 404 ")) == HttpAnswer(
        404, closes=True
    )


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"\x15\x03\x01", b"H" * 10,
        reply(), reply("Content-Length: x"), reply("Content-Length: -1"),
        reply("Content-Length: 1", "content-length: 1"),
        reply(f"Content-Length: {MAX_BODY + 1}"), reply("Content-Length: 99999999999999999999"),
        reply("Transfer-Encoding: chunked", "Content-Length: 1", body=b"x"),
        reply("Content-Encoding: gzip", "Content-Length: 1", body=b"x"),
        reply("Content-Length: 1", body=b"xHTTP/1.1 200"), b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5_000,
    ],
    ids=lambda data: repr(data[:40]),
)  # fmt: skip
def test_what_is_no_answer_of_an_agent_is_refused(data: bytes) -> None:
    with pytest.raises(GarbageError):
        AnswerReader().feed(data)


@given(st.lists(st.binary(max_size=40) | st.just(b"HTTP/1.1 200 OK\r\n") | st.just(b"\r\n\r\n"), max_size=6))
def test_any_stream_ends_in_an_answer_a_refusal_or_a_wait(chunks: list[bytes]) -> None:
    reader = AnswerReader()
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except GarbageError:
        return
