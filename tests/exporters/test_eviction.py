"""Who has to go when there is no room: the rules, one by one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.clients import SLOW_SECONDS, STALLED_SECONDS, hoarders, victim
from exporters.connection import Connection, Timeouts
from exporters.deferred import Deferred
from exporters.gate import PlainTransport
from exporters.http_messages import Request, Response

NOW = 1000.0
Make = Callable[..., Connection]


@pytest.fixture(scope="module")
def pair() -> Iterator[socket.socket]:
    with ExitStack() as stack:
        ours, _theirs = (stack.enter_context(each) for each in socket.socketpair())
        yield ours


def idle(sock: socket.socket, ago: float) -> Connection:
    return Connection(PlainTransport(sock), "client", Timeouts(30.0, 10.0, 10.0), NOW - ago)


def waiting(sock: socket.socket, ago: float) -> Connection:
    made = idle(sock, ago)
    made.ask(Request("GET", "/"), NOW - ago)
    made.wait(Deferred(), NOW - ago)
    return made


def writing(sock: socket.socket, ago: float, body: bytes = b"body", answers: int = 1) -> Connection:
    made = idle(sock, ago)
    made.ask(Request("GET", "/"), NOW - ago)
    made.answer(Response(HTTPStatus.OK, body), NOW - ago)
    made.answers = answers
    made.moved = NOW
    return made


def test_the_one_that_has_been_quiet_longest_goes_first(pair: socket.socket) -> None:
    quiet = idle(pair, 0.2)
    assert victim([waiting(pair, 9.0), idle(pair, 0.1), quiet, writing(pair, 9.0)], NOW) is quiet


@pytest.mark.parametrize("slow", [waiting, writing])
def test_if_none_is_quiet_the_client_longest_with_one_answer_is_evicted(pair: socket.socket, slow: Make) -> None:
    longest = slow(pair, 3 * SLOW_SECONDS)
    others = [
        waiting(pair, 2 * SLOW_SECONDS),
        writing(pair, 2 * SLOW_SECONDS),
        waiting(pair, 0.0),
        writing(pair, 0.0, answers=99),
    ]
    assert victim([*others, longest], NOW) is longest


def scraper(sock: socket.socket, ago: float) -> Connection:
    """Idle, after an answer."""
    made = idle(sock, ago)
    made.answers = 1
    return made


def test_in_a_flood_of_newcomers_one_of_them_goes_and_no_scraper_that_waits_for_its_next_second(
    pair: socket.socket,
) -> None:
    newest, oldest, known = idle(pair, 0.1), idle(pair, 0.3), scraper(pair, 15.0)
    assert victim([known, newest, oldest], NOW) is oldest


def test_those_who_hold_most_places_with_one_answer_give_room_to_newcomers(pair: socket.socket) -> None:
    hoarding = [scraper(pair, 15.0 + number) for number in range(2)]
    assert victim([idle(pair, 0.1), idle(pair, 0.2), *hoarding], NOW) is hoarding[1]


def test_a_reader_that_takes_nothing_may_go_sooner(pair: socket.socket) -> None:
    stalled = writing(pair, 1.5 * STALLED_SECONDS)
    stalled.moved = NOW - 1.1 * STALLED_SECONDS
    assert victim([writing(pair, 0.4), stalled, waiting(pair, 0.4), writing(pair, 0.0, answers=99)], NOW) is stalled


def test_where_all_are_quick_the_one_with_the_most_answers_goes(pair: socket.socket) -> None:
    greedy = writing(pair, 0.1, answers=30)
    assert victim([writing(pair, 0.1), greedy, writing(pair, 0.4, answers=29), waiting(pair, 0.4)], NOW) is greedy


def test_no_client_is_evicted_in_a_first_answer_that_has_just_begun(pair: socket.socket) -> None:
    assert victim([writing(pair, 0.1), waiting(pair, SLOW_SECONDS)], NOW) is None
    assert victim([], NOW) is None


def test_the_readers_of_the_oldest_pages_go_until_the_rest_fits(pair: socket.socket) -> None:
    pages = [bytes(100) for _ in range(10)]
    readers = [writing(pair, 10.0 - number, page) for number, page in enumerate(pages)]
    assert hoarders(readers, 300) == readers[6::-1]
    assert hoarders(readers, 1000) == []


def test_many_readers_of_one_page_keep_it_once(pair: socket.socket) -> None:
    page = bytes(100)
    assert hoarders([writing(pair, 1.0, page) for _ in range(64)], 150) == []


def test_the_newest_page_is_never_too_large(pair: socket.socket) -> None:
    old, new = writing(pair, 2.0, bytes(10)), writing(pair, 1.0, bytes(1000))
    assert hoarders([old, new], 100) == [old]


def test_a_client_that_keeps_nothing_is_not_disconnected(pair: socket.socket) -> None:
    assert hoarders([idle(pair, 50.0), waiting(pair, 50.0), writing(pair, 50.0, b"")], 0) == []


@given(
    st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(0, 5), st.integers(1, 200)), max_size=20), st.integers(0, 500)
)
def test_what_stays_is_within_the_limit_or_one_page(
    pair: socket.socket, readers: list[tuple[float, int, int]], limit: int
) -> None:
    pages = {(number, size): bytes(size) for _, number, size in readers}
    made = [writing(pair, ago, pages[number, size]) for ago, number, size in readers]
    gone = hoarders(made, limit)
    kept = {id(each.holds): len(each.holds) for each in made if each not in gone}
    assert sum(kept.values()) <= limit or len(kept) == 1
    assert not gone or any(each not in gone for each in made)
