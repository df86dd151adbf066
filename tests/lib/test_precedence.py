"""A thread that computes waits while a page is made, and no flood of pages stops it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from agent.lib.precedence import LONGEST_SECONDS, REST, Precedence, give_way


@pytest.fixture
def precedence() -> Iterator[Precedence]:
    made = Precedence()
    yield made
    made.hold(False, 1e9)


def waited() -> bool:
    """Whether a thread that gives way waits, until it is released or loses patience."""
    began = time.monotonic()
    give_way()
    return time.monotonic() - began >= LONGEST_SECONDS / 2


def test_nobody_waits_for_nothing(precedence: Precedence) -> None:
    assert not waited()
    precedence.hold(False, 0.0)
    assert not waited()


def test_those_who_compute_wait_until_the_page_is_made(precedence: Precedence) -> None:
    precedence.hold(True, 100.0)
    passed = threading.Event()
    thread = threading.Thread(target=lambda: (give_way(), passed.set()))
    thread.start()
    precedence.hold(False, 100.001)
    thread.join()
    assert passed.is_set()
    assert not waited()


def test_a_claim_that_nobody_ends_holds_nobody_up_for_long(precedence: Precedence) -> None:
    """The thread that serves may have failed meanwhile."""
    precedence.hold(True, 100.0)
    began = time.monotonic()
    assert waited()
    assert time.monotonic() - began < 50 * LONGEST_SECONDS


def test_a_claim_ends_by_itself_and_then_others_have_their_time(precedence: Precedence) -> None:
    precedence.hold(True, 0.0)
    precedence.hold(True, LONGEST_SECONDS)
    assert not waited()
    over = LONGEST_SECONDS * (1 + REST)
    precedence.hold(True, over - 0.001)
    assert not waited()
    precedence.hold(True, over + 0.001)
    assert waited()


def test_claims_take_a_fifth_of_the_time_at_most(precedence: Precedence) -> None:
    now, held, began = 100.0, 0.0, 100.0
    claimed = False
    while now < 110.0:  # somebody always wants a page
        precedence.hold(True, now)
        held += 0.001 if claimed else 0.0
        claimed = precedence.holds
        now += 0.001
    assert held <= (now - began) / (1 + REST) * 1.1
    assert held > 1.0
