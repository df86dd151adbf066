"""What goes wrong is said once, and once that it is over."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from exporters.complaints import QUIET_SECONDS, Complaints


@pytest.fixture
def complaints() -> Complaints:
    return Complaints(logging.getLogger("exporters.test"))


Said = Callable[[], list[logging.LogRecord]]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level(logging.INFO)
    return lambda: caplog.records


def complain(complaints: Complaints, now: float, key: str = "a") -> None:
    complaints.say(now, key, "%s is wrong", key, relief=f"{key} is well again")


def test_a_lasting_problem_is_logged_at_its_beginning_and_at_its_end(complaints: Complaints, said: Said) -> None:
    for second in range(100):
        complain(complaints, second)
        complaints.ease(second)
    assert [record.getMessage() for record in said()] == ["a is wrong"]
    complaints.ease(99 + QUIET_SECONDS - 1)
    assert len(said()) == 1
    complaints.ease(99 + QUIET_SECONDS)
    assert [(record.levelname, record.getMessage()) for record in said()] == [
        ("WARNING", "a is wrong"),
        ("INFO", "a is well again"),
    ]
    complaints.ease(1000.0)
    complain(complaints, 1001.0)
    assert len(said()) == 3


def test_one_thing_does_not_hide_another(complaints: Complaints, said: Said) -> None:
    complain(complaints, 0.0, "a")
    complain(complaints, 0.0, "b")
    assert [record.getMessage() for record in said()] == ["a is wrong", "b is wrong"]


def fail_here() -> None:
    raise ZeroDivisionError("by request")


def fail_there() -> None:
    raise ZeroDivisionError("by request")


def test_a_defect_is_reported_with_its_traceback_once_for_each_place_in_the_code(
    complaints: Complaints, said: Said
) -> None:
    for now in range(20):
        for fail in (fail_here, fail_there):
            try:
                fail()
            except ZeroDivisionError as error:
                complaints.defect(now, error, "it failed")
    assert len(said()) == 2
    assert all(record.exc_info for record in said())
    complaints.ease(20 + QUIET_SECONDS)
    assert len(said()) == 2  # nobody can tell that a defect is over
