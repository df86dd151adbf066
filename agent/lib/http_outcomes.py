"""The outcome of a request to an HTTP server: an answer, or why there is none. The vocabulary of all our clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Names of `headers` are in lower case; of several with one name the first is kept, unless they are a list.

    `closes`: the connection cannot be used again. `cut`: the body was longer.
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
