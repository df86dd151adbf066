"""What one client can take in one turn, and what is forgotten of it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from http import HTTPStatus

import pytest

from agent.lib.logs import LogOnce
from exporters.clients import Clients
from exporters.connection import Connection, Timeouts
from exporters.gate import PlainTransport
from exporters.http_messages import Request, Response

TIMEOUTS = Timeouts(30.0, 10.0, 10.0)


class Bottomless:
    """A socket whose reader takes everything at once."""

    def __init__(self) -> None:
        self.taken = 0

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        size = sum(map(len, buffers))
        self.taken += size
        return size


def test_a_client_that_takes_everything_at_once_gets_only_one_chunk_in_a_turn() -> None:
    sock = Bottomless()
    connection = Connection(PlainTransport(sock), "client", TIMEOUTS, 0.0)  # type: ignore[arg-type]
    connection.ask(Request("GET", "/"), 0.0)
    connection.answer(Response(HTTPStatus.OK, bytes(4 * 1024 * 1024)), 0.0)
    turns = 1
    while not connection.flush(0.0):
        assert sock.taken <= turns * 300_000
        turns += 1
    assert sock.taken > 4 * 1024 * 1024
    assert turns > 10
    assert connection.holds == b""


def test_what_a_client_has_cost_is_forgotten_with_time() -> None:
    """A scraper that has been there for a year must not come after those who arrived a moment ago."""
    clients = Clients(
        lambda request: Response(HTTPStatus.OK), lambda: 0.0, TIMEOUTS, LogOnce(logging.getLogger("t")),
        nudge=lambda: None, hang_up=socket.socket.close,
    )  # fmt: skip
    connection = Connection(PlainTransport(Bottomless()), "client", TIMEOUTS, 0.0)  # type: ignore[arg-type]
    connection.cost = 8.0
    clients.connections.add(connection)
    for tenth in range(1, 101):
        clients.expire(tenth / 10)
    assert connection.cost == pytest.approx(8.0 / 2**10, rel=0.6)
