"""Who asks for a reload is told how it went, and only so many may wait for it."""

from __future__ import annotations

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


def test_a_client_gets_the_result_of_the_reload_that_it_asked_for(reloads: Routes, begun: list[Tell]) -> None:
    answers = [ask(reloads) for _ in range(3)]
    begun[0](True, "one")
    begun[2](False, "no such file")
    assert [told(each) for each in answers] == [(200, b"one\n"), None, (500, b"no such file\n")]


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
    ask(reloads)


def test_a_reload_that_hangs_collects_a_bounded_number_of_requests(reloads: Routes, begun: list[Tell]) -> None:
    for _ in range(1000):
        answer = reloads(RELOAD)
        if isinstance(answer, Deferred):
            answer.abandoned = True
    assert len(begun) == 256
    for tell in begun:
        tell(True, "at last")
    ask(reloads)
