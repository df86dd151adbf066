"""Who shakes hands when, in a turn: after those who are connected, and not so that newcomers wait for a whole flood."""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus

import pytest

from agent.lib.logs import LogOnce
from exporters.clients import Clients
from exporters.connection import Connection, Timeouts
from exporters.http_messages import Response

STEP = 0.001
"""Seconds that everything takes here, a handshake's step as well as a request."""
TURN = 0.005


class Line:
    """Clients that all have something to be read, and the order in which it is."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.now = 100.0
        self.served: list[str] = []
        self.clients = Clients(
            lambda request: Response(HTTPStatus.OK), lambda: self.now, Timeouts(30.0, 10.0, 10.0),
            LogOnce(logging.getLogger("t")), nudge=lambda: None, hang_up=socket.socket.close,
        )  # fmt: skip
        self.clients.attach(stack.enter_context(selectors.DefaultSelector()))

    def add(self, name: str, came: float, shaking: bool = True, cost: float = 0.0) -> Connection:
        ours, _theirs = (self._stack.enter_context(each) for each in socket.socketpair())
        made = Connection(SlowTransport(self, name, ours, shaking), name, Timeouts(30.0, 10.0, 10.0), came)
        made.cost = cost
        self.clients.connections.add(made)
        return made

    def turn(self) -> list[str]:
        """Whom one turn serves, in order."""
        self.served = []
        self.clients.serve(sorted(self.clients.connections, key=lambda each: each.peer), TURN)
        return self.served


class SlowTransport:
    """Time passes with each step; the handshake never ends."""

    blocked = False

    def __init__(self, line: Line, name: str, sock: socket.socket, shaking: bool) -> None:
        self.sock = sock
        self.shaking = shaking
        self._line = line
        self._name = name

    def _step(self) -> None:
        self._line.now += STEP
        self._line.served.append(self._name)

    def shake(self) -> None:
        self._step()

    def receive(self) -> None:
        self._step()

    def send(self, pieces: object) -> int:
        return 0

    def end(self) -> None:
        """Nobody waits for a farewell."""


@pytest.fixture
def line() -> Iterator[Line]:
    with ExitStack() as stack:
        yield Line(stack)


def test_who_is_connected_comes_before_all_handshakes_whatever_it_has_cost(line: Line) -> None:
    line.add("scraper", 1.0, shaking=False, cost=9.0)
    for number in range(50):
        line.add(f"newcomer {number}", 90.0 + number / 100)
    assert line.turn()[0] == "scraper"


def test_a_flood_of_handshakes_gets_a_part_of_a_turn_only(line: Line) -> None:
    for number in range(50):
        line.add(f"newcomer {number}", 90.0 + number / 100)
    assert len(line.turn()) * STEP < TURN / 2


def test_handshakes_go_on_where_those_who_are_connected_use_up_their_turn(line: Line) -> None:
    for number in range(50):
        line.add(f"client {number}", 1.0, shaking=False)
    line.add("newcomer", 90.0)
    served = line.turn()
    assert (len(served), served[-1]) == (TURN / STEP + 1, "newcomer")


def test_the_newest_shakes_hands_first_once_those_under_way_have(line: Line) -> None:
    line.add("oldest", 90.0)
    line.add("half in", 91.0, cost=0.001)
    line.add("newest", 99.0)
    assert line.turn()[:2] == ["half in", "newest"]
