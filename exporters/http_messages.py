"""The part of HTTP/1.1 that an exporter needs, as data: bytes in, requests out; responses in, bytes out.

Strict on purpose: anything that is not clearly a request is rejected with a status and the connection is closed,
because a lenient parser is where request smuggling starts. It knows no sockets and no clock. It rejects
chunked bodies, header folding, trailers and upgrades: no client of an exporter needs them.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus

from msgspec import Struct, field

MAX_HEAD = 8 * 1024
"""Bytes of request line and headers together."""

MAX_HEADERS = 100
"""Header lines: each takes a microsecond to parse, and 8 KiB have room for two thousand."""

MAX_BODY = 64 * 1024

METHODS = ("GET", "HEAD", "POST", "PUT")
_PASSED_ON = frozenset({*METHODS, "DELETE", "OPTIONS", "PATCH"})  # the site answers these with 405
_WITH_BODY = frozenset({"POST", "PUT"})
_MAX_TOKENS = 16
_SINGLE = frozenset({"content-length", "host", "transfer-encoding"})

TEXT = "text/plain; charset=utf-8"

GO_AHEAD = b"HTTP/1.1 100 Continue\r\n\r\n"

_END = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_AUTHORITY = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


class RefusedError(Exception):
    """A request that is answered with an error, after which its connection is closed."""

    def __init__(self, status: HTTPStatus, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(text)
        self.response = Response(status, f"{text}\n".encode(), headers=headers)


class Request(Struct, frozen=True):
    """A complete request. Header names are in lower case; `path` is as sent, without the query."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    http11: bool = True

    @property
    def keep_alive(self) -> bool:
        """Whether the client wants to keep the connection."""
        tokens = {token.strip().lower() for token in self.headers.get("connection", "").split(",", _MAX_TOKENS)}
        if self.http11:
            return "close" not in tokens
        return "keep-alive" in tokens


class Response(Struct, frozen=True):
    """A handler's answer. `body` is shared between clients, never copied."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def head(self, keep_alive: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            "X-Content-Type-Options: nosniff",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


FAILED = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error; coldplate's log says more\n")


class RequestReader:
    """Cuts requests out of the bytes of one connection. Holds at most one head, one body and one chunk."""

    __slots__ = ("_buffer", "_go_ahead", "_head", "_missing")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Request | None = None
        self._missing = 0  # bytes of body that belong to the head
        self._go_ahead = False

    @property
    def begun(self) -> bool:
        """Whether part of another request has arrived."""
        return self._head is not None or bool(self._buffer)

    @property
    def held(self) -> int:
        """Bytes that have not become a request yet."""
        return len(self._buffer)

    def takes_go_ahead(self) -> bool:
        """Return True once if the client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1)."""
        waits, self._go_ahead = self._go_ahead and self._head is not None, False
        return waits

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Request | None:
        """Return the next request; None while it is not complete. Raises RefusedError."""
        if self._head is None:
            self._read_head()
        head = self._head
        if head is None or len(self._buffer) < self._missing:
            return None
        body = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self._head = None
        return Request(head.method, head.path, head.query, head.headers, body, head.http11) if body else head

    def _read_head(self) -> None:
        # RFC 9112, 2.2: empty lines before a request are ignored. They are dropped only with the request that follows:
        # a client that sends nothing else has begun a request, and times out.
        rest = self._buffer.lstrip(b"\r\n")
        if rest:
            self._buffer = rest
            if not _NAME.match(rest):  # such as a TLS hello: no need to wait for more
                raise _malformed("this is not an HTTP request (the port speaks plain HTTP)")
        end = _END.search(rest, 0, MAX_HEAD + 4)
        if end is None:
            if len(self._buffer) > MAX_HEAD:
                raise _too_long(self._buffer)
            return
        head = bytes(self._buffer[: end.start()])
        if len(head) > MAX_HEAD:
            raise _too_long(self._buffer)
        del self._buffer[: end.end()]
        self._head = parse_head(head)
        self._missing = body_length(self._head)
        expected = self._head.headers.get("expect", "").lower()
        self._go_ahead = self._head.http11 and expected == "100-continue" and len(self._buffer) < self._missing


def parse_head(head: bytes) -> Request:
    """Request line and headers, without the empty line at the end. Raises RefusedError."""
    lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise _malformed("malformed request line")
    method, target = match[1].decode("ascii"), match[2].decode("ascii")
    if match[3] != b"1":
        raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.1")
    if method not in _PASSED_ON:
        raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, f"unknown method {method}", (("Allow", ", ".join(METHODS)),))
    if len(lines) > MAX_HEADERS + 1:
        raise RefusedError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request may have at most {MAX_HEADERS} header lines"
        )
    headers = _headers(lines[1:])
    http11 = match[4] != b"0"
    if http11 and "host" not in headers:
        raise _malformed("HTTP/1.1 requires a Host header")
    path, _, query = _origin_form(target).partition("?")
    return Request(method, path, query, headers, http11=http11)


def body_length(request: Request) -> int:
    """Return bytes of body that follow the head. Raises RefusedError."""
    coding = request.headers.get("transfer-encoding")
    length = request.headers.get("content-length", "0")
    if coding is not None:
        if coding.lower() == "chunked":
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "chunked bodies are not accepted: send a Content-Length")
        raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "transfer codings are not accepted")
    if not (length.isascii() and length.isdigit()):
        raise _malformed("malformed Content-Length")
    limit = MAX_BODY if request.method in _WITH_BODY else 0
    if len(length) > 18 or int(length) > limit:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body of a {request.method} may have at most {limit} bytes"
        )
    return int(length)


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        raw, colon, rest = line.partition(b":")
        value = rest.strip(b" \t")
        if not colon or _NAME.fullmatch(raw) is None or _CONTROL.search(value):
            raise _malformed("malformed header")
        name = raw.decode("ascii").lower()
        if name in headers:
            if name in _SINGLE:
                raise _malformed(f"more than one {name} header")
            headers[name] += f", {value.decode('latin-1')}"
        else:
            headers[name] = value.decode("latin-1")
    return headers


def _origin_form(target: str) -> str:
    """Return the path of a target; RFC 9112, 3.2.2: a server must accept the absolute form as well."""
    if target.startswith("/") or target == "*":
        return target
    authority = _AUTHORITY.match(target)
    if authority is None:
        raise _malformed("malformed request target")
    rest = target[authority.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


def _malformed(text: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, text)


def _too_long(buffer: bytearray) -> RefusedError:
    if b"\n" in buffer[:MAX_HEAD]:
        return RefusedError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"request line and headers may have at most {MAX_HEAD} bytes"
        )
    return RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, f"a request line may have at most {MAX_HEAD} bytes")
