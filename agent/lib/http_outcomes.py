"""How asking an HTTP server ends: with an answer, or with why there is none. One vocabulary for all of our clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Names of `headers` are in lower case; of several with one name the first is kept, but for what is
    a list.

    `closes`: the connection cannot be used again. `cut`: the body went on.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    closes: bool = False
    cut: bool = False


class HttpFault(Enum):
    """Why there is no answer."""

    UNREACHABLE = auto()
    """No connection, or it broke off."""
    UNTRUSTED = auto()
    """The server's certificate; the remedy is the caller's to name, by its own keys."""
    UNREADABLE = auto()
    """A file of ours: the password, the token or the certificates."""
    TIMEOUT = auto()
    GARBAGE = auto()
    """What came is no answer of HTTP/1.1, or one that is not taken."""


class HttpError(Exception):
    """There is no whole answer. The text says why, and repeats nothing that was sent.

    `head` is the status with its headers, where those came before it failed. `kept` says that the connection was one
    of before: a new one may do better.
    """

    def __init__(self, fault: HttpFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault
        self.head: HttpAnswer | None = None
        self.kept = False
