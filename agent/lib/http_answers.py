"""Responses of HTTP/1.1 as data: bytes in, answers or reasons for their absence out, without sockets or clock.

The servers of management controllers and proxies are accepted as they are. That is safe with one request at a time: in
any doubt where an answer ends the connection is closed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator, Mapping
from enum import Enum, auto

from msgspec import Struct, field
from msgspec.structs import replace

MOST_HEADERS = 100
MOST_INTERIM = 16
"""Most answers with a status of 1xx before the final one."""
MOST_CHUNK_LINE = 1024

_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([0-9])[ \t]+([1-9][0-9]{2})(?:[ \t].*)?", re.DOTALL)
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?", re.DOTALL)
_BODYLESS = (204, 304)
_LISTS = ("connection", "transfer-encoding")
_OK = 200
_FIRST = b"HTTP/1."
_GZIP = b"\x1f\x8b"
"""The first bytes of gzip (RFC 1952, 2.3.1)."""
_UNTIL_CLOSE, _CHUNKED = sys.maxsize, -1
"""The size of a body that ends with the connection, and that of one in chunks."""


class AnswerBounds(Struct, frozen=True):
    """Most bytes of a body and of a head. A longer body is cut off."""

    body: int
    head: int = 64 * 1024


class AnswerReader:
    """Splits what arrives into answers. Holds at most one head, one body and the last data that it was fed."""

    def __init__(self, bounds: AnswerBounds) -> None:
        self._bounds = bounds
        self._buffer = bytearray()
        self._body = bytearray()
        self._size = 0
        self._interim = 0
        self._steps = self._answers()
        self.begun = False
        """Whether part of an answer has arrived."""
        self.head: HttpAnswer | None = None
        """Status and headers of the answer under way, once they have come."""

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take in data; returns the answer once it is complete. Raises HttpError."""
        self._buffer += data
        self.begun = True
        return next(self._steps)

    def hang_up(self) -> HttpAnswer | None:
        """Note that the server closed the connection; returns the answer, if that is what ends it."""
        return None if self.head is None or self._size != _UNTIL_CLOSE else self._finish(self.head)

    def _answers(self) -> Iterator[HttpAnswer | None]:
        """Yield each answer, and None where more data is needed."""
        while True:
            while self.head is None:
                self._parse_head((yield from self._head_lines()))
            yield from self._chunks() if self._size == _CHUNKED else self._bytes(self._size)
            yield self._finish(self.head)

    def _finish(self, head: HttpAnswer) -> HttpAnswer:
        body = bytes(self._body[: self._bounds.body])
        closes = head.closes or self._is_cut or bool(self._buffer)
        answer = HttpAnswer(head.status, head.headers, body, closes, self._is_cut)
        self.head, self._interim, self.begun = None, 0, False
        self._buffer.clear()
        self._body = bytearray()
        return answer

    @property
    def _is_cut(self) -> bool:
        return len(self._body) > self._bounds.body

    def _head_lines(self) -> Generator[None, None, list[bytes]]:
        bounds, buffer, searched = self._bounds, self._buffer, 0
        while (end := _END.search(buffer, searched, bounds.head)) is None:
            if len(buffer) >= bounds.head or not _FIRST.startswith(buffer[: len(_FIRST)]):
                raise _garbage("not an HTTP response")
            searched = max(len(buffer) - 3, 0)  # the end may have begun to arrive
            yield
        lines = bytes(buffer[: end.start()]).split(b"\n")
        del buffer[: end.end()]
        return lines

    def _bytes(self, size: int) -> Iterator[None]:
        """Move this many bytes from the buffer to the body, as they come, unless the body becomes too long."""
        while True:
            here = self._buffer[:size]
            del self._buffer[: len(here)]
            self._body += here
            size -= len(here)
            if not size or self._is_cut:
                return
            yield

    def _chunks(self) -> Iterator[None]:
        """Do the same with chunks, each after a line with its size (RFC 9112, 7.1), without extensions and trailers."""
        while size := _chunk_size((yield from self._line())):
            yield from self._bytes(size)
            if self._is_cut:
                return
            if (yield from self._line()):
                raise _garbage("a chunk is longer than its size")
        for _ in range(MOST_HEADERS):
            if not (yield from self._line()):
                return
        raise _garbage("the trailers of the response never end")

    def _line(self) -> Generator[None, None, bytes]:
        """Return the next line, without its end. Raises HttpError."""
        buffer = self._buffer
        while (end := buffer.find(b"\n", 0, MOST_CHUNK_LINE)) < 0:
            if len(buffer) >= MOST_CHUNK_LINE:
                raise _garbage("a chunk has no valid size")
            yield
        line = bytes(buffer[:end]).removesuffix(b"\r")
        del buffer[: end + 1]
        return line

    def _parse_head(self, lines: list[bytes]) -> None:
        match = _STATUS.fullmatch(lines[0].rstrip(b"\r"))
        if match is None or len(lines) > MOST_HEADERS + 1:
            raise _garbage("not an HTTP response")
        status = int(match[2])
        if status < _OK:
            self._interim += 1
            if status == 101 or self._interim > MOST_INTERIM:
                raise _garbage(f"an unsolicited response with status {status}")
            return
        headers, doubtful = _headers(lines[1:])
        self._size, unclear = _size_of(status, headers)
        closes = doubtful or unclear or _closes(headers, old=match[1] == b"0")
        self.head = HttpAnswer(status, headers, closes=closes)


def _headers(lines: list[bytes]) -> tuple[dict[str, str], bool]:
    """Return the headers, and whether the end of the body is doubtful; a line that is not a header is skipped."""
    headers: dict[str, str] = {}
    doubtful, last = False, ""
    for line in lines:
        raw, colon, rest = line.partition(b":")
        value = rest.strip(b" \t\r").decode("latin-1")
        if line[:1] in (b" ", b"\t"):
            if last:
                headers[last] += " " + line.strip(b" \t\r").decode("latin-1")
            continue
        if not colon or _NAME.fullmatch(raw) is None:
            doubtful = doubtful or b"length" in raw.lower() or b"encoding" in raw.lower()
            last = ""
            continue
        last = raw.decode("ascii").lower()
        if last not in headers:
            headers[last] = value
        elif last in _LISTS:
            headers[last] += f", {value}"
        elif last == "content-length":
            doubtful = True
            last = ""
    return headers, doubtful


def _closes(headers: Mapping[str, str], old: bool) -> bool:
    """Return whether the server closes the connection after this answer; HTTP/1.0 does unless it says otherwise."""
    wishes = {wish.strip().lower() for wish in headers.get("connection", "").split(",")}
    return "close" in wishes or (old and "keep-alive" not in wishes)


def _size_of(status: int, headers: Mapping[str, str]) -> tuple[int, bool]:
    """Return the bytes of the body (RFC 9112, 6.3), and whether its end is in doubt."""
    codings = [coding.strip().lower() for coding in headers.get("transfer-encoding", "").split(",")]
    length = headers.get("content-length")
    if status in _BODYLESS:
        return 0, False
    if codings[-1] == "chunked":
        return _CHUNKED, length is not None
    if length is not None and _LENGTH.fullmatch(length):
        return int(length), codings != [""]
    return _UNTIL_CLOSE, True


def _chunk_size(line: bytes) -> int:
    match = _CHUNK_SIZE.fullmatch(line)
    if match is None:
        raise _garbage("a chunk has no valid size")
    return int(match[1], 16)


def _garbage(text: str) -> HttpError:
    return HttpError(HttpFault.GARBAGE, text)


class HttpAnswer(Struct, frozen=True):
    """Names of `headers` are in lower case; of several with one name the first is kept, unless they are a list.

    `closes`: the connection cannot be used again. `cut`: the body was longer.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    closes: bool = False
    cut: bool = False


def decompressed(answer: HttpAnswer, limit: int) -> HttpAnswer:
    """Return the answer with a body of at most `limit` bytes that is not compressed. Raises HttpError.

    Gzip is recognised by its first bytes: servers compress what was not asked for, and do not always say so.
    """
    if not answer.body.startswith(_GZIP):
        return answer
    import zlib

    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        body = inflater.decompress(answer.body, limit + 1)
    except zlib.error as error:
        raise _garbage("damaged gzip data") from error
    is_cut = len(body) > limit or answer.cut
    if not inflater.eof and not is_cut:
        raise _garbage("truncated gzip data")
    return replace(answer, body=body[:limit], cut=is_cut)


class HttpFault(Enum):
    """The reason of a missing answer."""

    UNREACHABLE = auto()
    """No connection, or it broke off."""
    UNTRUSTED = auto()
    """The server's certificate; the caller names the remedy, by its own keys."""
    UNREADABLE = auto()
    """A local file: the password, the token or the certificates."""
    TIMEOUT = auto()
    GARBAGE = auto()
    """Not a response of HTTP/1.1, or one that is not accepted."""


class HttpError(Exception):
    """There is no complete answer. The text says why, and repeats nothing that was sent.

    `head` is the status with its headers, if those came before it failed. `kept` says that the connection was an old
    one: a new one may do better.
    """

    def __init__(self, fault: HttpFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault
        self.head: HttpAnswer | None = None
        self.kept = False
