"""Who asks for a reload is told of one that began after the asking, and the daemon has one to do at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from exporters.deferred import Deferred
from exporters.http_messages import Request, Response
from exporters.routes import Routes
from tests.asking import context

RELOAD = Request("POST", "/-/reload")
Tell = Callable[[bool, str], None]


@pytest.fixture
def begun() -> list[Tell]:
    """The reloads that the daemon was asked for."""
    return []


@pytest.fixture
def reloads(begun: list[Tell]) -> Routes:
    return Routes(context(reload=begun.append))


def ask(reloads: Routes) -> Deferred:
    answer = reloads(RELOAD)
    assert isinstance(answer, Deferred)
    return answer


def told(answer: Deferred) -> tuple[int, bytes] | None:
    return None if answer.response is None else (answer.response.status, answer.response.body)


def test_those_who_ask_during_a_reload_share_the_next_one(reloads: Routes, begun: list[Tell]) -> None:
    """The file may have changed while the first was under way: its end says nothing to them."""
    first = ask(reloads)
    others = [ask(reloads) for _ in range(5)]
    assert len(begun) == 1
    begun[0](True, "one")
    assert told(first) == (200, b"one\n")
    assert [told(each) for each in others] == [None] * 5
    reloads.work()
    reloads.work()
    assert len(begun) == 2
    begun[1](True, "two")
    assert [told(each) for each in others] == [(200, b"two\n")] * 5
    reloads.work()
    assert len(begun) == 2
    ask(reloads)
    ask(reloads).abandoned = True  # it hung up before its reload began, which is made all the same
    begun[2](True, "")
    reloads.work()
    assert len(begun) == 4


def test_the_number_of_waiting_clients_is_bounded_and_those_who_hung_up_do_not_count(
    reloads: Routes, begun: list[Tell]
) -> None:
    answers = [reloads(RELOAD) for _ in range(40)]
    crowded = [each for each in answers if isinstance(each, Response)]
    assert len(crowded) == 24
    assert {each.status for each in crowded} == {503}
    for each in answers:
        if isinstance(each, Deferred):
            each.abandoned = True
    for _ in range(1000):
        ask(reloads).abandoned = True
    assert len(begun) == 1


def test_a_reload_that_cannot_be_begun_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def broken(tell: Tell) -> None:
        raise RuntimeError("no main thread")

    reloads = Routes(context(reload=broken))
    for _ in range(2):
        assert told(ask(reloads)) == (500, b"the reload could not be started: no main thread\n")
    assert all(record.levelno == logging.ERROR for record in caplog.records)
