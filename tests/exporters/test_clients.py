"""What one client may take, who goes first in a turn, and who has to go when there is no room."""

import logging
import selectors
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from http import HTTPStatus

import pytest

from agent.lib.logs import LogOnce
from exporters.clients import SLOW_SECONDS, STALLED_SECONDS, Clients, victim
from exporters.connection import Connection
from exporters.deferred import Deferred
from exporters.gate import ClientTransport, PortGate
from exporters.http_messages import Request, Response


def clients_by(clock: Callable[[], float]) -> Clients:
    return Clients(
        lambda request: Response(HTTPStatus.OK),
        clock,
        LogOnce(logging.getLogger("t")),
        nudge=lambda: None,
        hang_up=socket.socket.close,
        gate=PortGate(),
    )


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
    connection = Connection(ClientTransport(sock), "client", 0.0)  # type: ignore[arg-type]
    connection.ask(Request("GET", "/"), 0.0)
    connection.answer(Response(HTTPStatus.OK, bytes(4 * 1024 * 1024)), 0.0)
    turns = 1
    while not connection.flush(0.0):
        assert sock.taken <= turns * 300_000
        turns += 1
    assert sock.taken > 4 * 1024 * 1024
    assert turns > 10
    assert connection.body == b""


def test_what_a_client_has_cost_is_forgotten_with_time() -> None:
    """A scraper that has been there for a year must not come after those who arrived a moment ago."""
    clients = clients_by(lambda: 0.0)
    connection = Connection(ClientTransport(Bottomless()), "client", 0.0)  # type: ignore[arg-type]
    connection.cost = 8.0
    clients.connections.add(connection)
    for tenth in range(1, 101):
        clients.expire(tenth / 10)
    assert connection.cost == pytest.approx(8.0 / 2**10, rel=0.6)


STEP = 0.001
"""Seconds that everything takes here, a handshake's step as well as a request."""
TURN = 0.005


class Line:
    """Clients that all have something to be read, and the order in which it is."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.now = 100.0
        self.served: list[str] = []
        self.clients = clients_by(lambda: self.now)
        self.clients.attach(stack.enter_context(selectors.DefaultSelector()))

    def flood(self, name: str, came: float, shaking: bool = True) -> None:
        for number in range(50):
            self.add(f"{name} {number}", came + number / 100, shaking)

    def add(self, name: str, came: float, shaking: bool = True, cost: float = 0.0) -> None:
        ours, _theirs = (self._stack.enter_context(each) for each in socket.socketpair())
        made = Connection(SlowTransport(self, name, ours, shaking), name, came)
        made.cost = cost
        self.clients.connections.add(made)

    def turn(self) -> list[str]:
        self.served = []
        self.clients.serve(sorted(self.clients.connections, key=lambda each: each.peer), TURN)
        return self.served


class SlowTransport(ClientTransport):
    """Time passes with each step; the handshake never ends."""

    def __init__(self, line: Line, name: str, sock: socket.socket, shaking: bool) -> None:
        super().__init__(sock)
        self.shaking = shaking
        self._line = line
        self._name = name

    def shake(self) -> None:
        self._line.now += STEP
        self._line.served.append(self._name)

    receive = shake


@pytest.fixture
def line() -> Iterator[Line]:
    with ExitStack() as stack:
        yield Line(stack)


def test_connected_clients_come_before_handshakes_which_get_a_part_of_a_turn(line: Line) -> None:
    line.flood("newcomer", 90.0)
    assert len(line.turn()) * STEP < TURN / 2
    line.add("scraper", 1.0, shaking=False, cost=9.0)
    assert line.turn()[0] == "scraper"
    line.flood("client", 1.0, shaking=False)
    served = line.turn()
    assert len(served) == TURN / STEP + 1, "those who are connected use up their turn"
    assert served[-1].startswith("newcomer"), "and a handshake goes on"


def test_the_newest_shakes_hands_first_once_those_under_way_have(line: Line) -> None:
    line.add("oldest", 90.0)
    line.add("half in", 91.0, cost=0.001)
    line.add("newest", 99.0)
    assert line.turn()[:2] == ["half in", "newest"]


NOW = 1000.0
Make = Callable[..., Connection]


def idle(ago: float) -> Connection:
    return Connection(ClientTransport(Bottomless()), "client", NOW - ago)  # type: ignore[arg-type]


def waiting(ago: float) -> Connection:
    made = idle(ago)
    made.ask(Request("GET", "/"), NOW - ago)
    made.wait(Deferred(), NOW - ago)
    return made


def writing(ago: float, answers: int = 1) -> Connection:
    made = idle(ago)
    made.ask(Request("GET", "/"), NOW - ago)
    made.answer(Response(HTTPStatus.OK, b"body"), NOW - ago)
    made.answers = answers
    made.moved = NOW
    return made


def scraper(ago: float) -> Connection:
    """Idle, after an answer."""
    made = idle(ago)
    made.answers = 1
    return made


def greedy(ago: float) -> Connection:
    return writing(ago, answers=30)


def stalled(ago: float) -> Connection:
    """A reader that takes nothing."""
    made = writing(ago)
    made.moved = NOW - 1.1 * STALLED_SECONDS
    return made


@pytest.mark.parametrize(
    ("goes", "others"),
    [
        # the one that has been quiet longest
        ((idle, 0.2), [(waiting, 9.0), (idle, 0.1), (writing, 9.0)]),
        # if none is quiet, the client longest with one answer
        *(
            ((slow, 3 * SLOW_SECONDS), [(waiting, 2 * SLOW_SECONDS), (writing, 2 * SLOW_SECONDS), (greedy, 0.0)])
            for slow in (waiting, writing)
        ),
        # in a flood of newcomers one of them, and no scraper that waits for its next second
        ((idle, 0.3), [(scraper, 15.0), (idle, 0.1)]),
        # those who hold most places with one answer give room to newcomers
        ((scraper, 16.0), [(idle, 0.1), (idle, 0.2), (scraper, 15.0)]),
        # a reader that takes nothing may go sooner
        ((stalled, 1.5 * STALLED_SECONDS), [(writing, 0.4), (waiting, 0.4), (greedy, 0.0)]),
        # where all are quick, the one with the most answers
        ((greedy, 0.1), [(writing, 0.1), (writing, 0.4), (waiting, 0.4)]),
        # none in a first answer that has just begun
        (None, [(writing, 0.1), (waiting, SLOW_SECONDS)]),
        (None, []),
    ],
)
def test_who_is_evicted(goes: tuple[Make, float] | None, others: list[tuple[Make, float]]) -> None:
    chosen = goes and goes[0](goes[1])
    rest = [make(ago) for make, ago in others]
    for place in range(len(rest) + 1):
        assert victim([*rest[:place], *([chosen] if chosen else []), *rest[place:]], NOW) is chosen
