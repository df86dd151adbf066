"""What counts as a request, and how the rest is refused."""

from http import HTTPStatus

import pytest

from exporters.http_messages import MAX_BODY, MAX_HEAD, MAX_HEADERS, RefusedError, Request, RequestReader, Response


def read_all(data: bytes) -> list[Request]:
    reader = RequestReader()
    reader.feed(data)
    return list(iter(reader.next, None))


def test_a_request_is_understood_and_headers_of_one_name_are_joined() -> None:
    (request,) = read_all(b"GET /metrics?a=b HTTP/1.1\r\nHost: node\r\nACCEPT:  text/plain \r\naccept: b\r\n\r\n")
    assert (request.method, request.path, request.query) == ("GET", "/metrics", "a=b")
    assert request.headers == {"host": "node", "accept": "text/plain, b"}
    assert request.keep_alive


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://node:19400/metrics", "/metrics", ""),
        (b"HTTP://node/metrics", "/metrics", ""),
        (b"http://node?a=b", "/", "a=b"),
        (b"http://user:word@[::1]:80/x?y", "/x", "y"),
        (b"http://", "/", ""),
        (b"https://node/%2e%2e/metrics", "/%2e%2e/metrics", ""),
        (b"/metrics?http://other/", "/metrics", "http://other/"),
        (b"//other/metrics", "//other/metrics", ""),
        (b"*", "*", ""),
    ],
)
def test_a_target_may_be_absolute_and_is_taken_as_it_is_sent(target: bytes, path: str, query: str) -> None:
    (request,) = read_all(b"GET " + target + b" HTTP/1.0\r\n\r\n")
    assert (request.path, request.query) == (path, query)


@pytest.mark.parametrize(
    ("head", "body", "waits"),
    [
        (b"HTTP/1.1\r\nHost: n\r\nExpect: 100-continue\r\nContent-Length: 2", b"", True),
        (b"HTTP/1.1\r\nHost: n\r\nEXPECT: 100-Continue\r\nContent-Length: 2", b"a", True),
        (b"HTTP/1.1\r\nHost: n\r\nExpect: 100-continue\r\nContent-Length: 2", b"ab", False),  # it did not wait
        (b"HTTP/1.1\r\nHost: n\r\nExpect: 100-continue", b"", False),  # there is nothing to wait with
        (b"HTTP/1.1\r\nHost: n\r\nExpect: miracles\r\nContent-Length: 2", b"", False),
        (b"HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2", b"", False),  # RFC 9110: not from HTTP/1.0
    ],
)
def test_a_client_that_waits_for_a_go_ahead_is_noticed_once(head: bytes, body: bytes, waits: bool) -> None:
    reader = RequestReader()
    reader.feed(b"POST / " + head + b"\r\n\r\n" + body)
    request = reader.next()
    assert reader.takes_go_ahead() is waits
    assert not reader.takes_go_ahead()
    assert (request is None) is (reader.begun)


POST = b"POST /-/reload HTTP/1.1\r\nHost: n\r\nContent-Length: "


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),  # a TLS hello, refused without waiting for more
        (b"GET /\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: n\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nSpace : x\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nA: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nA: x\x00y\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nA: x\ry\r\n\r\n", 400),
        (b"GET metrics HTTP/1.0\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"BREW /pot HTTP/1.0\r\n\r\n", 501),
        (POST + b"-1\r\n\r\n", 400),
        (POST + b"+1\r\n\r\n", 400),
        (POST + b"1, 1\r\n\r\n", 400),
        (POST + b"1\r\nContent-Length: 1\r\n\r\n", 400),
        (POST + b"\xb2\r\n\r\n", 400),  # a superscript two is a digit to Unicode only
        (POST + b"%d\r\n\r\n" % (MAX_BODY + 1), 413),
        (POST + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\n", 413),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (POST + b"1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET /" + b"a" * MAX_HEAD, 414),
        (b"GET / HTTP/1.0\r\nA: " + b"a" * MAX_HEAD, 431),
        (b"\r\n" * MAX_HEAD, 431),
        (b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431),
        (b"GET http:///metrics HTTP/1.0 HTTP/1.0\r\n\r\n", 400),
        (b"GET ftp://node/metrics HTTP/1.0\r\n\r\n", 400),
    ],
)
def test_what_is_not_plainly_a_request_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(RefusedError) as caught:
        read_all(data)
    assert caught.value.response.status == status
    shows_methods = ("Allow", "GET, HEAD, POST, PUT") in caught.value.response.headers
    assert shows_methods is data.startswith(b"BREW")


def test_the_largest_head_and_body_and_the_most_headers_are_accepted() -> None:
    padding = MAX_HEAD - len(POST) - len("65536\r\nA: ")
    (request,) = read_all(POST + b"65536\r\nA: " + b"a" * padding + b"\r\n\r\n" + b"x" * MAX_BODY)
    assert len(request.body) == MAX_BODY
    (request,) = read_all(b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * MAX_HEADERS + b"\r\n")
    assert request.headers["a"].count("b") == MAX_HEADERS
    reader = RequestReader()
    reader.feed(b"\r\n\r\n\r\n")
    assert (reader.next(), reader.begun) == (None, True), "empty lines alone are the beginning of a request"


def test_a_response_says_how_long_it_is_and_that_its_type_is_meant() -> None:
    head = Response(HTTPStatus.OK, b"page", "text/html", (("Vary", "Accept"),)).head(keep_alive=True)
    assert head == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: keep-alive\r\n"
        b"X-Content-Type-Options: nosniff\r\nVary: Accept\r\n\r\n"
    )
