"""However long, dense or deep a query is, it is evaluated or refused; neither takes the stack or much memory."""

from __future__ import annotations

import tracemalloc

import pytest

from alerts.promql import EvaluationError, PromqlError, Sample, Scalar, Storage, Value, compile_query, make_labels
from alerts.promql.syntax.flaw import DEEPEST, LONGEST_TEXT, MOST_TOKENS
from tests.stack import far_down

# What opens a level, what stands innermost, what closes a level.
NESTINGS = [
    ("(", "m", ")"), ("-", "m", ""), ("- -", "m", ""), ("sum(", "m", ")"), ("sum by (a) (", "m", ")"),
    ("abs(", "m", ")"), ("topk(1, ", "m", ")"), ("topk(scalar(", "m", "), m)"), ("quantile(scalar(", "m", "), m)"),
    ('count_values("a", ', "m", ")"), ("max_over_time(", "m", "[1m:1m])"), ("timestamp(", "m", ")"),
    ("hour(", "m", ")"), ("clamp(m, 0, scalar(", "m", "))"), ("clamp(", "m", ", 0, 9)"),
    ("round(m, scalar(", "m", "))"), ("quantile_over_time(scalar(", "m", "), m[1m])"),
    ("predict_linear(m[1m], scalar(", "m", "))"), ("vector(scalar(", "m", "))"), ("absent(", "m", ")"),
    ("sort(", "m", ")"), ("histogram_quantile(0.5, ", "m", ")"), ("label_replace(", "m", ', "a", "b", "c", "d")'),
    ("label_join(", "m", ', "a", "b")'), ("(", "m", " or m or m)"), ("m or (", "m", ")"),
    ("m or m and m == m + m * m ^ (", "m", ")"), ("(", "m", " > 1 < 9)"), ("m / on(a) (", "m", ")"),
    ("(m) ^ ", "m", ""), ("2 ^ ", "2", ""), ("1 - (", "scalar(m)", ")"),
    ("max_over_time((", "m", " > 0 or m)[1m:1m])"),
]  # fmt: skip


def nested(nesting: tuple[str, str, str], levels: int) -> str:
    before, inner, after = nesting
    return before * levels + inner + after * levels


def most_levels(nesting: tuple[str, str, str]) -> int:
    """How many of the levels a query may have."""
    levels = 1
    while True:
        try:
            compile_query(nested(nesting, levels + 1))
        except PromqlError as error:
            assert f"nested more than {DEEPEST} levels deep" in error.problem
            assert error.position is not None
            return levels
        levels += 1


@pytest.mark.parametrize("nesting", NESTINGS, ids=["".join(each) for each in NESTINGS])
def test_the_deepest_query_needs_half_of_the_stack(nesting: tuple[str, str, str]) -> None:
    storage = Storage()
    for label in "ab":
        storage.append(make_labels({"a": label}, "m"), 1.0, 3.0)
    text = nested(nesting, most_levels(nesting))
    query = far_down(lambda: compile_query(text))

    def evaluated() -> Value | None:
        try:
            return query.evaluate(storage, 1.0)
        except EvaluationError:
            return None

    far_down(evaluated)


@pytest.mark.parametrize(
    ("text", "at", "limit"),
    [
        ("m" * (LONGEST_TEXT + 1), (1, LONGEST_TEXT + 1), LONGEST_TEXT),
        ("1" + "+1" * (MOST_TOKENS // 2), (1, MOST_TOKENS + 1), MOST_TOKENS),
        ("(" * LONGEST_TEXT, (1, MOST_TOKENS + 1), MOST_TOKENS),
        ("(" * 400, (1, DEEPEST + 1), DEEPEST),
        ("(" * 400 + "m" + ")" * 400, (1, DEEPEST + 1), DEEPEST),
        ("sum(" * 400 + "m" + ")" * 400, (1, 4 * DEEPEST + 1), DEEPEST),
        ("-" * 400 + "m", (1, DEEPEST + 1), DEEPEST),
    ],
    ids=["long", "dense", "open", "unclosed", "deep", "sums", "signs"],
)
def test_what_is_too_large_is_refused_where_it_becomes_so(text: str, at: tuple[int, int], limit: int) -> None:
    with pytest.raises(PromqlError) as caught:
        compile_query(text)
    assert str(limit) in caught.value.problem
    assert caught.value.position == at


def test_the_longest_text_is_read() -> None:
    compile_query("m" + " " * (LONGEST_TEXT - 1))
    compile_query('"' + "x" * (LONGEST_TEXT - 2) + '"')


ROW = 700


@pytest.mark.parametrize(
    ("first", "more", "value"),
    [
        ("m", " + m", 3.0 * (ROW + 1)),
        ("m", " or m", 3.0),
        ("m", " and m unless n", 3.0),
        ("m", " > 1 < 9", 3.0),
        ("1", " + m", 3.0 * ROW + 1),
        ("m", " - on(a) group_left m + 1 * 1", 3.0 - 2 * ROW),
        ("time()", " + 1", 1.0 + ROW),
        ("1", " + 1", 1.0 + ROW),
        ("m", " != bool 3", 1.0),
    ],
)
def test_a_row_of_operators_may_be_long(first: str, more: str, value: float) -> None:
    storage = Storage()
    storage.append(make_labels({"a": "b"}, "m"), 1.0, 3.0)
    query = far_down(lambda: compile_query(first + more * ROW))
    for _ in range(2):
        found = far_down(lambda: query.evaluate(storage, 1.0))
        (element,) = found if isinstance(found, list) else (found,)
        assert isinstance(element, (Sample, Scalar))
        assert element.value == value


def test_an_error_within_a_row_leaves_nothing_behind() -> None:
    storage, query = Storage(), compile_query("m + n - scalar(n * on(a) o)")
    for labels, name in (({"a": "b"}, "m"), ({"a": "b"}, "n"), ({"a": "b"}, "o")):
        storage.append(make_labels(labels, name), 1.0, 3.0)
    storage.append(make_labels({"a": "b", "c": "d"}, "o"), 2.0, 3.0)
    storage.append(make_labels({"a": "b"}, "m"), 2.0, 30.0)
    expected = query.evaluate(storage, 1.0)
    for _ in range(3):
        with pytest.raises(EvaluationError):
            query.evaluate(storage, 2.0)
        assert query.evaluate(storage, 1.0) == expected


@pytest.mark.parametrize(
    "text", ["m" + " or m" * (MOST_TOKENS // 2 - 1), "m" + "+1" * (MOST_TOKENS // 2 - 1), "#\n" * 32_000]
)
def test_the_largest_query_takes_little_memory(text: str) -> None:
    compile_query("m or m + 1")
    tracemalloc.start()
    try:
        compile_query(text)
        _, peak = tracemalloc.get_traced_memory()
    except PromqlError:
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * 2**20
