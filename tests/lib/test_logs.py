"""Log lines: a terminal must neither obey nor misread them; what goes wrong is said once, and once that it is over."""

import io
import json
import logging

import pytest

from agent.lib import logs
from agent.lib.logs import QUIET_SECONDS, LogOnce

NAME = "pay\u202eload\u2028\x1b[2J \u200f\x7f"


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_what_a_terminal_would_obey_is_escaped(style: str) -> None:
    stream = io.StringIO()
    logs.set_up("info", style, stream)
    logging.getLogger("x").info("rule %s failed", NAME, extra={"facts": {"rule_group": NAME, "unit": "µΩ"}})
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "\\u202e" in line and "µΩ" in line
    if style == "json":
        assert (json.loads(line)["rule_group"], json.loads(line)["msg"]) == (NAME, f"rule {NAME} failed")


@pytest.fixture
def once(caplog: pytest.LogCaptureFixture) -> LogOnce:
    caplog.set_level(logging.INFO)
    return LogOnce(logging.getLogger("test"))


def complain(once: LogOnce, now: float, key: str = "a") -> None:
    once.passing(now, key, "%s is wrong", key, over=f"{key} is well again")


def test_a_lasting_problem_is_logged_at_its_beginning_and_at_its_end(once: LogOnce, caplog) -> None:
    for second in range(100):
        complain(once, second)
        once.ease(second)
    assert [record.getMessage() for record in caplog.records] == ["a is wrong"]
    once.ease(99 + QUIET_SECONDS - 1)
    assert len(caplog.records) == 1
    once.ease(99 + QUIET_SECONDS)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "a is wrong"),
        ("INFO", "a is well again"),
    ]
    once.ease(1000.0)
    complain(once, 1001.0)
    complain(once, 1001.0, "b")
    assert [record.getMessage() for record in caplog.records[2:]] == ["a is wrong", "b is wrong"]


def fail_here() -> None:
    raise ZeroDivisionError("by request")


def fail_there() -> None:
    raise ZeroDivisionError("by request")


def test_a_defect_is_reported_with_its_traceback_once_for_each_place_in_the_code(once: LogOnce, caplog) -> None:
    for now in range(20):
        for fail in (fail_here, fail_there):
            try:
                fail()
            except ZeroDivisionError as error:
                once.defect(now, error, "it failed")
    assert len(caplog.records) == 2
    assert all(record.exc_info for record in caplog.records)
    once.ease(20 + QUIET_SECONDS)
    assert len(caplog.records) == 2  # nobody can tell that a defect is over


def test_a_problem_is_logged_again_only_if_it_is_another_one(once: LogOnce, caplog) -> None:
    once.over("disk", "never said")
    for text in ("full", "full", "gone"):
        once.problem("disk", "%s", text, cause=text, facts={"path": "/var"})
        once.problem("network", "cannot send: %s", text)
    once.over("disk", "%s again", "well")
    once.over("disk", "%s again", "well")
    assert [record.getMessage() for record in caplog.records] == ["full", "cannot send: full", "gone", "well again"]
    assert caplog.records[0].__dict__["facts"] == {"path": "/var"}
