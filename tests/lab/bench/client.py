"""A scraper that costs next to nothing: plain sockets, and the headers that Prometheus sends."""

from __future__ import annotations

import random
import re
import socket
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

Address = tuple[str, int]

OPENMETRICS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""Accept, as Prometheus 2.42 sends it."""
TEXT = "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""Accept, as Prometheus sent it before it knew OpenMetrics."""

SHORTEST, LONGEST = 0.005, 0.020
"""Seconds between two scrapes of the paced client."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One scrape. `seconds` from before the connection to the last byte."""

    seconds: float
    head: bytes
    body: bytes

    @property
    def text(self) -> str:
        body = zlib.decompress(self.body, 31) if b"content-encoding: gzip" in self.head.lower() else self.body
        return body.decode()


def request(address: Address, accept: str = OPENMETRICS, gzip: bool = True, path: str = "/metrics") -> bytes:
    """The bytes that ask for a page."""
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {address[0]}:{address[1]}",
        "User-Agent: Prometheus/2.42.0",
        f"Accept: {accept}",
        f"Accept-Encoding: {'gzip' if gzip else 'identity'}",
        "X-Prometheus-Scrape-Timeout-Seconds: 10",
    )
    return "\r\n".join((*lines, "", "")).encode()


def scrape(address: Address, asked: bytes) -> Answer:
    """One page over a new connection. Raises OSError, and ValueError for an answer that is not 200."""
    began = time.perf_counter()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(10.0)
        sock.connect(address)
        sock.sendall(asked)
        head, body = _receive(sock)
    took = time.perf_counter() - began
    if b" 200 " not in head[:16]:
        raise ValueError(f"{address[0]}:{address[1]} answered {head[:40]!r}")
    return Answer(took, head, body if b"chunked" not in head.lower() else _unchunk(body))


def _receive(sock: socket.socket) -> tuple[bytes, bytes]:
    """Header and body of one response, the body still in chunks if it came so."""
    data = bytearray()
    end = -1
    while end < 0:
        _more(sock, data)
        end = data.find(b"\r\n\r\n")
    head = bytes(data[:end])
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if length:
        while len(data) < end + 4 + int(length[1]):
            _more(sock, data)
    else:
        while not data.endswith(b"\r\n0\r\n\r\n"):
            _more(sock, data)
    return head, bytes(data[end + 4 :])


def _more(sock: socket.socket, data: bytearray) -> None:
    piece = sock.recv(1 << 17)
    if not piece:
        raise ConnectionError("the server hung up within its answer")
    data += piece


def _unchunk(body: bytes) -> bytes:
    parts: list[bytes] = []
    place = 0
    while True:
        line = body.index(b"\r\n", place)
        size = int(body[place:line].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[line + 2 : line + 2 + size])
        place = line + 4 + size


def paced(address: Address, asked: bytes, count: int, rng: random.Random) -> list[float]:
    """Latencies of that many scrapes, each some milliseconds after the one before it ended."""
    taken = []
    for _ in range(count):
        time.sleep(rng.uniform(SHORTEST, LONGEST))
        taken.append(scrape(address, asked).seconds)
    return taken


def middle(values: Sequence[float]) -> float:
    return median(values)


def highest_hundredth(values: Sequence[float]) -> float:
    """The 99th percentile; of a single scrape, which took all of the time there was, its own."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[98]


def values_of(page: str) -> dict[str, float]:
    """Values by name and labels as they stand on the page: enough to count and to look some up."""
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line and not line.startswith("#")
    }


def free_port() -> int:
    """A port of the loopback interface that nobody listens on at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
