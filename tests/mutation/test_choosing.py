"""Who is asked about a mutant: the tests that run the line, quick ones of each file first, and never for too long."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from tests.mutation.choosing import grouped, stages

MUTANT: Any = SimpleNamespace(path="agent/x.py", lines=(5,), function=(4, 5, 6))


class Known:
    """A map of tests as the case has it: contexts by line, and seconds by test."""

    def __init__(self, seconds: dict[str, float], lines: dict[int, set[str]]) -> None:
        self.seconds = seconds
        self._lines = lines

    def contexts(self, path: str, lines: Iterable[int]) -> set[str]:
        return {each for line in lines for each in self._lines.get(line, ())}


def asked(known: Any, budget: float = 100.0) -> list[list[str]]:
    return list(stages(MUTANT, known, budget))


def test_a_few_of_each_file_come_first_and_those_that_take_least_before_them() -> None:
    seconds = {f"a.py::{number}": 0.1 + number for number in range(5)} | {"b.py::it": 0.5}
    known = Known(seconds, {5: {f"{test}|call" for test in seconds}})
    assert asked(known) == [
        ["b.py::it", "a.py::0", "a.py::1", "a.py::2"],
        ["a.py::3", "a.py::4"],
    ]


def test_tests_of_the_folder_that_is_named_like_one_of_the_code_come_before_all_others() -> None:
    seconds = {"tests/other/test_a.py::quick": 0.1} | {f"tests/rack/test_b.py::{number}": 2.0 for number in range(4)}
    known: Any = Known(seconds, {5: {f"{test}|call" for test in seconds}})
    mutant: Any = SimpleNamespace(**{**vars(MUTANT), "path": "agent/rack/x.py"})
    assert list(stages(mutant, known, 100.0)) == [
        [f"tests/rack/test_b.py::{number}" for number in range(4)],
        ["tests/other/test_a.py::quick"],
    ]


def test_the_neighbours_of_a_fixture_or_child_process_are_asked_last() -> None:
    seconds = {"a.py::started_it": 1.0, "a.py::looked_at_it": 1.0, "b.py::ran_it": 1.0, "b.py::other": 1.0}
    known = Known(seconds, {5: {"a.py::started_it|child", "b.py::ran_it|call"}})
    assert asked(known)[1:] == [["a.py::looked_at_it"]]


def test_the_budget_is_not_exceeded() -> None:
    seconds = {f"a.py::{number}": 6.0 for number in range(9)}
    known = Known(seconds, {5: {f"{test}|call" for test in seconds}})
    assert sum(len(stage) for stage in asked(known, budget=30.0)) == 5


def test_tests_of_the_same_folder_leave_the_others_most_of_a_small_budget() -> None:
    seconds = {f"tests/rack/test_b.py::{number}": 1.0 for number in range(40)} | {"tests/other/test_a.py::quick": 0.5}
    known: Any = Known(seconds, {5: {f"{test}|call" for test in seconds}})
    mutant: Any = SimpleNamespace(**{**vars(MUTANT), "path": "agent/rack/x.py"})
    first, second, *_ = stages(mutant, known, 12.0)
    assert len(first) == 3
    assert "tests/other/test_a.py::quick" in second


def test_a_line_that_no_test_was_seen_to_run_goes_by_its_function_and_then_by_its_module() -> None:
    seconds = {"a.py::function": 1.0, "a.py::module": 1.0}
    lines = {4: {"a.py::function|call"}, 99: {"a.py::module|call"}}
    assert asked(Known(seconds, lines)) == [["a.py::function"]]
    assert asked(Known(seconds, {99: lines[99]})) == [["a.py::module"]]
    assert asked(Known(seconds, {})) == []


def test_tests_that_failed_when_they_were_recorded_judge_nothing() -> None:
    assert asked(Known({}, {5: {"a.py::broken|call"}})) == []


def test_the_tests_of_a_file_stay_together() -> None:
    known: Any = Known({"a.py::1": 1.0, "b.py::1": 2.0, "a.py::2": 3.0}, {})
    assert grouped(known.seconds, known) == ["b.py::1", "a.py::1", "a.py::2"]
