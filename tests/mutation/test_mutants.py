"""What is broken in a file of code, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutants import mutants_of, reviewed


@pytest.fixture
def diffs(tmp_path: Path, request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """What mutants of a function with the body given make of it."""
    body = "".join(f"    {line}\n" for line in request.param.splitlines())
    (tmp_path / "x.py").write_text(f'def f(a: int = 1) -> None:\n    """Text."""\n{body}')
    return [each.diff() for each in mutants_of(tmp_path, "x.py") if each.line > 1]


@pytest.mark.parametrize("diffs", ["wake.set()"], indirect=True)
def test_a_lone_call_is_left_out(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == [("- wake.set()", "+ ...")]


@pytest.mark.parametrize("diffs", ["if told:\n    return 2"], indirect=True)
def test_a_condition_is_turned_round(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == [("- if told:", "+ if (not told):"), ("- return 2", "+ return 3")]


@pytest.mark.parametrize("diffs", ["return a < 1"], indirect=True)
def test_mutmut_s_operators_are_there(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == [("- return a < 1", "+ return a <= 1"), ("- return a < 1", "+ return a < 2")]


@pytest.mark.parametrize(
    "diffs",
    [
        "b: int | None",
        "assert a == 1",
        'return "a text with blanks"',
        'raise ValueError("wording")',
        "raise ValueError(f'wording {a}') from None",
        'return text.encode("ascii")',
        "return text.decode('utf-8')",
    ],
    indirect=True,
)
def test_what_no_test_should_see_is_left_alone(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == []


@pytest.mark.parametrize("diffs", ["return cast(int, a)"], indirect=True)
def test_what_only_the_type_checker_is_told_is_left_alone(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == [
        ("- return cast(int, a)", "+ return cast(int, None)"),
        ("- return cast(int, a)", "+ return cast(int, )"),
    ]


@pytest.mark.parametrize("diffs", ["a = False"], indirect=True)
def test_what_is_false_becomes_true_and_not_none(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == [("- a = False", "+ a = True")]


@pytest.mark.parametrize(
    "diffs", ["facts = {'n': 1 + a}\nlog.warning('wording %s', 1 + a, extra={'facts': facts})"], indirect=True
)
def test_a_log_line_may_be_missed_and_what_it_says_is_free(diffs: list[tuple[str, ...]]) -> None:
    assert diffs == [("- log.warning('wording %s', 1 + a, extra={'facts': facts})", "+ ...")]


def test_tables_outside_functions_and_what_people_are_shown_of_an_object_are_left_alone(tmp_path: Path) -> None:
    text = "TABLE = (1, 2)\n\nclass X:\n    most = 3\n\n    def __repr__(self) -> str:\n        return 'X'\n"
    (tmp_path / "x.py").write_text(text)
    assert mutants_of(tmp_path, "x.py") == []


def test_a_statement_of_several_lines_is_run_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def f():\n    return (\n        1\n    )\n")
    (mutant,) = mutants_of(tmp_path, "x.py")
    assert (mutant.line, mutant.lines) == (3, (2, 3))
    assert mutant.code() == "def f():\n    return (\n        2\n    )\n"


def test_what_is_listed_as_equivalent_has_a_reason(tmp_path: Path) -> None:
    listed = tmp_path / "equivalent.txt"
    listed.write_text("# A remark.\n\nagent/x.py\n- a\n+ b\n= a hint for speed\n")
    assert list(reviewed(listed)) == [("agent/x.py", ("- a", "+ b"))]
    listed.write_text("agent/x.py\n- a\n+ b\n")
    with pytest.raises(ValueError, match="no reason"):
        list(reviewed(listed))


def test_every_change_that_is_listed_can_still_be_made() -> None:
    root = Path(__file__).resolve().parents[2]
    for path, diff in reviewed(Path(__file__).with_name("equivalent.txt")):
        lines = (root / path).read_text().splitlines()
        there = [each for each in mutants_of(root, path) if lines[each.line - 1].strip() == diff[0].removeprefix("- ")]
        assert any(each.diff() == diff for each in there), f"{path}: {diff}"
