"""Clients that do what no client should, each kind in a process of its own: `python -m tests.lab.bench.rude KIND PORT`.

They go on until they are ended. They are nice to the other programs on this machine, and to nobody else: where a
daemon is attacked from, there are other processors than where it runs.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"
NICE = 19


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: node", *headers, "", "")).encode()


def connect(port: int, receive: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    sock.settimeout(10.0)
    sock.connect((HOST, port))
    return sock


def slowloris(port: int, number: int) -> None:
    """Two hundred connections, each a byte of a request now and then."""
    socks: list[socket.socket] = []
    for place in itertools.cycle(range(200 // 8)):
        if place == 0:
            time.sleep(0.2)
        with suppress(OSError):
            if place >= len(socks):
                socks.append(connect(port))
                socks[place].sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            socks[place].sendall(b"a")
            continue
        if place < len(socks):
            socks.pop(place).close()


def snapshots(port: int, number: int) -> None:
    """Eight snapshots at a time over one connection, without end."""
    sock = connect(port)
    while True:
        sock.sendall(get("/api/v1/snapshot") * 8)
        for _ in range(8):
            read_response(sock)


def read_response(sock: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += more(sock)
    left = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) - len(head.split(b"\r\n\r\n", 1)[1])
    while left > 0:
        left -= len(more(sock, left))


def more(sock: socket.socket, most: int = 1 << 18) -> bytes:
    piece = sock.recv(min(most, 1 << 18))
    if not piece:
        raise ConnectionError
    return piece


def stalled(port: int, number: int) -> None:
    """Readers that ask for large pages and take none of them."""
    socks: list[socket.socket] = []
    while True:
        with suppress(OSError):
            socks.append(connect(port, 4096))
            socks[-1].sendall(get(("/api/v1/snapshot", "/api/v1/rules", "/metrics")[len(socks) % 3]) * 4)
        time.sleep(0.05)
        if len(socks) > 20:
            socks.pop(0).close()


def flood(port: int, number: int) -> None:
    """Connections as fast as they can be made, most of them for nothing."""
    kept: list[socket.socket] = []
    for turn in itertools.count():
        sock = connect(port)
        if turn % 4 == 0:
            kept.append(sock)
            if len(kept) > 50:
                kept.pop(0).close()
        else:
            sock.close()


def selections(port: int, number: int) -> None:
    """Every rule there is, in words that nobody has used before."""
    sock = connect(port)
    while True:
        names = "&".join(f"rule_group%5B%5D=load{place}" for place in range(100))
        sock.sendall(get(f"/api/v1/rules?{names}&rule_group[]={random.random()}", "Accept-Encoding: gzip"))
        read_response(sock)


def reloads(port: int, number: int) -> None:
    """A reload as soon as the last one is over."""
    with connect(port) as sock:
        sock.settimeout(100.0)
        sock.sendall(b"POST /-/reload HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n")
        read_response(sock)


def compressed(port: int, number: int) -> None:
    """Every page there is, compressed, over a new connection each."""
    for path in ("/", "/metrics", "/api/v1/snapshot", "/api/v1/alerts", f"/api/v1/rules?rule_name[]={random.random()}"):
        with connect(port) as sock:
            sock.sendall(get(path, "Accept-Encoding: gzip", "Accept: application/openmetrics-text"))
            read_response(sock)


def heads(port: int, number: int) -> None:
    """Requests that are as laborious to understand as their size allows."""
    sock = connect(port)
    wishes = "a/b;q=0.5,*/*;q=0.1,text/plain," * 200
    while True:
        sock.sendall(get("/metrics?" + "a&" * 400, *(f"X{place}: y" for place in range(90)), f"Accept: {wishes}"))
        read_response(sock)


KINDS: dict[str, tuple[Callable[[int, int], None], int]] = {
    "slowloris": (slowloris, 8),
    "snapshots": (snapshots, 60),
    "stalled": (stalled, 8),
    "flood": (flood, 4),
    "selections": (selections, 60),
    "reloads": (reloads, 4),
    "compressed": (compressed, 30),
    "heads": (heads, 60),
}
"""What each client does, and how many there are."""


def main(kind: str, port: int) -> None:
    os.nice(NICE)
    rude, number = KINDS[kind]

    def go_on(client: int) -> None:
        while True:
            with suppress(OSError, IndexError):
                rude(port, client)
            time.sleep(0.01)

    for client in range(number):
        threading.Thread(target=go_on, args=(client,), daemon=True).start()
    parent = os.getppid()
    while os.getppid() == parent:  # it must not survive the benchmark
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
