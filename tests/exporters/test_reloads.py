"""Who asks for a reload is told of one that began after the asking, and the daemon has one to do at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from exporters.deferred import Deferred, ReloadRequests
from exporters.http_messages import Response

Tell = Callable[[bool, str], None]


class Main:
    def __init__(self) -> None:
        self.begun: list[Tell] = []

    def __call__(self, tell: Tell) -> None:
        self.begun.append(tell)


@pytest.fixture
def main() -> Main:
    return Main()


def ask(reloads: ReloadRequests) -> Deferred:
    answer = reloads.ask()
    assert isinstance(answer, Deferred)
    return answer


def told(answer: Deferred) -> tuple[int, bytes] | None:
    return None if answer.response is None else (answer.response.status, answer.response.body)


def test_those_who_ask_during_a_reload_share_the_next_one(main: Main) -> None:
    """The file may have changed while the first was under way: its end says nothing to them."""
    reloads = ReloadRequests(main)
    first = ask(reloads)
    others = [ask(reloads) for _ in range(5)]
    assert len(main.begun) == 1
    main.begun[0](True, "one")
    assert told(first) == (200, b"one\n")
    assert [told(each) for each in others] == [None] * 5
    reloads.step()
    reloads.step()
    assert len(main.begun) == 2
    main.begun[1](True, "two")
    assert [told(each) for each in others] == [(200, b"two\n")] * 5
    reloads.step()
    assert len(main.begun) == 2


def test_a_reload_is_made_even_for_a_client_that_hung_up_before_it_began(main: Main) -> None:
    reloads = ReloadRequests(main)
    ask(reloads)
    ask(reloads).abandoned = True
    main.begun[0](True, "")
    reloads.step()
    assert len(main.begun) == 2


def test_the_number_of_waiting_clients_is_bounded_and_those_who_hung_up_do_not_count(main: Main) -> None:
    reloads = ReloadRequests(main)
    answers = [reloads.ask() for _ in range(40)]
    crowded = [each for each in answers if isinstance(each, Response)]
    assert len(crowded) == 24
    assert {each.status for each in crowded} == {503}
    for each in answers:
        if isinstance(each, Deferred):
            each.abandoned = True
    for _ in range(1000):
        ask(reloads).abandoned = True
    assert len(main.begun) == 1


def test_a_reload_that_cannot_be_begun_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def broken(tell: Tell) -> None:
        raise RuntimeError("no main thread")

    reloads = ReloadRequests(broken)
    for _ in range(2):
        assert told(ask(reloads)) == (500, b"the reload could not be started: no main thread\n")
    assert all(record.levelno == logging.ERROR for record in caplog.records)
