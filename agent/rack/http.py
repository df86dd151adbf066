"""The answers of HTTP/1.1 that an agent gives, as data: bytes in, answers out.

Strict and small: it takes a body with a Content-Length and nothing else. Chunked bodies, codings, redirects and
whatever is longer than an agent's answer can be are refused before they are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.rack.peer_messages import GarbageError

MAX_HEAD = 8 * 1024
MAX_BODY = 64 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*(?=\r\n)", re.IGNORECASE)
_LENGTHS = re.compile(rb"\r\ncontent-length[ \t]*:", re.IGNORECASE)
_CODING = re.compile(rb"\r\n(?:transfer|content)-encoding[ \t]*:", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[^\r\n]*\bclose\b", re.IGNORECASE)
_OLD = b"HTTP/1.0"
_OK = 200


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """`closes`: the connection cannot be used again. The body of any status but 200 is left unread."""

    status: int
    body: bytes = b""
    closes: bool = False


class AnswerReader:
    """Cuts one answer after the other out of what comes. Holds at most one head and one body."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def begun(self) -> bool:
        """Whether something of an answer is there."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take in what came; the answer once it is whole. Raises GarbageError."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD or not _may_begin(self._buffer):
                raise GarbageError("not an HTTP response")
            return None
        head = bytes(self._buffer[: end + 2])
        status = _STATUS.match(head)
        if status is None:
            raise GarbageError("not an HTTP response")
        code = int(status[1])
        if code != _OK:
            return HttpAnswer(code, closes=True)
        whole = end + 4 + _length(head)
        if len(self._buffer) < whole:
            return None
        if len(self._buffer) > whole:
            raise GarbageError("the response is longer than its Content-Length")
        body = bytes(self._buffer[end + 4 :])
        self._buffer.clear()
        return HttpAnswer(code, body, closes=head.startswith(_OLD) or _CLOSE.search(head) is not None)


def _may_begin(buffer: bytearray) -> bool:
    start = b"HTTP/1."
    return start.startswith(buffer[: len(start)])


def _length(head: bytes) -> int:
    if _CODING.search(head) is not None:
        raise GarbageError("the response is chunked or compressed, which agents never send: check any proxy in between")
    length = _LENGTH.search(head)
    if length is None or len(_LENGTHS.findall(head)) != 1:
        raise GarbageError("the response has no Content-Length")
    if int(length[1]) > MAX_BODY:
        raise GarbageError(f"a response of {int(length[1])} bytes; the limit is {MAX_BODY}")
    return int(length[1])
