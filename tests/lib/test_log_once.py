"""What goes wrong is said once, and once that it is over."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from agent.lib.logs import QUIET_SECONDS, LogOnce


@pytest.fixture
def once() -> LogOnce:
    return LogOnce(logging.getLogger("test"))


Said = Callable[[], list[logging.LogRecord]]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level(logging.INFO)
    return lambda: caplog.records


def complain(once: LogOnce, now: float, key: str = "a") -> None:
    once.passing(now, key, "%s is wrong", key, over=f"{key} is well again")


def test_a_lasting_problem_is_logged_at_its_beginning_and_at_its_end(once: LogOnce, said: Said) -> None:
    for second in range(100):
        complain(once, second)
        once.ease(second)
    assert [record.getMessage() for record in said()] == ["a is wrong"]
    once.ease(99 + QUIET_SECONDS - 1)
    assert len(said()) == 1
    once.ease(99 + QUIET_SECONDS)
    assert [(record.levelname, record.getMessage()) for record in said()] == [
        ("WARNING", "a is wrong"),
        ("INFO", "a is well again"),
    ]
    once.ease(1000.0)
    complain(once, 1001.0)
    assert len(said()) == 3


def test_one_thing_does_not_hide_another(once: LogOnce, said: Said) -> None:
    complain(once, 0.0, "a")
    complain(once, 0.0, "b")
    assert [record.getMessage() for record in said()] == ["a is wrong", "b is wrong"]


def fail_here() -> None:
    raise ZeroDivisionError("by request")


def fail_there() -> None:
    raise ZeroDivisionError("by request")


def test_a_defect_is_reported_with_its_traceback_once_for_each_place_in_the_code(once: LogOnce, said: Said) -> None:
    for now in range(20):
        for fail in (fail_here, fail_there):
            try:
                fail()
            except ZeroDivisionError as error:
                once.defect(now, error, "it failed")
    assert len(said()) == 2
    assert all(record.exc_info for record in said())
    once.ease(20 + QUIET_SECONDS)
    assert len(said()) == 2  # nobody can tell that a defect is over


def test_a_problem_is_logged_again_only_if_it_is_another_one(once: LogOnce, said: Said) -> None:
    once.over("disk", "never said")
    for text in ("full", "full", "gone"):
        once.problem("disk", "%s", text, what=text, facts={"path": "/var"})
        once.problem("network", "cannot send: %s", text)
    once.over("disk", "%s again", "well")
    once.over("disk", "%s again", "well")
    assert [record.getMessage() for record in said()] == ["full", "cannot send: full", "gone", "well again"]
    assert said()[0].__dict__["facts"] == {"path": "/var"}
