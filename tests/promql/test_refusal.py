"""What cannot be evaluated is refused when it is compiled, by name and place."""

from __future__ import annotations

import pytest

from alerts.promql import PromqlError, Selector, compile_query

REFUSED = [
    ("mad_over_time(m[5m])", (1, 1), "function mad_over_time() is not supported"),
    ("1 +\n  sin(m)", (2, 3), "function sin() is not supported"),
    ('sort_by_label(m, "x")', (1, 1), "function sort_by_label() is not supported"),
    ("step()", (1, 1), "function step() is not supported"),
    ("sum(limitk(2, m))", (1, 5), "aggregation limitk is not supported"),
    ("m + fill(0) n", (1, 5), "modifier fill is not supported"),
    ("m + fill_right(0) n", (1, 5), "modifier fill_right is not supported"),
    ('m{a="1" or b="2"}', (1, 9), "alternative matchers"),
    ("m @ 5", (1, 3), "'@' with a fixed time is not supported"),
    ("m @ -5", (1, 3), "'@' with a fixed time is not supported"),
    ("m[5m]", (1, 2), "a range vector is no result"),
    ("m[5m:1m]", (1, 2), "a range vector is no result"),
    ('m{a=~"x++"}', (1, 6), "regular expression 'x++': bad repetition operator"),
    ('m{a=~"x{1001}"}', (1, 6), "regular expression 'x{1001}': invalid repetition size"),
    ('m{a=~"["}', (1, 6), "illegal regex"),
    ('label_replace(m, "a", "$1", "b", "(")', (1, 1), "label_replace(): illegal regex"),
    ('label_replace(m, "", "$1", "b", "(.*)")', (1, 1), "invalid label name ''"),
    ('label_join(m, "", "-", "b")', (1, 1), "invalid label name ''"),
    ('count_values("", m)', (1, 1), "count_values needs a label name"),
    ("nonsense(m)", (1, 1), "unknown function with name 'nonsense'"),
    ("1 + rate(m)", (1, 5), "expected type matrix in call to function 'rate'"),
    ("m > and n", (1, 9), "syntax error"),  # `and` may be a metric there
    ("sum(m) by (a) n", (1, 15), "syntax error"),
    ("m\n  {a=}", (2, 6), "syntax error"),
    ("(m", (1, 1), "unclosed left parenthesis"),
    ("sum(m[5m", (1, 6), "unexpected end of input inside brackets"),
    ("m[5x]", (1, 3), "bad number or duration syntax"),
    ("", None, "no expression found"),
    ("1 > 2", None, "comparisons between scalars must use BOOL modifier"),
    ("m + on(a) group_left(a) n", (1, 8), "must not occur in ON and GROUP clause at once"),
]


@pytest.mark.parametrize(("query", "position", "words"), REFUSED, ids=[each[0] for each in REFUSED])
def test_a_query_is_refused_with_its_place(query: str, position: tuple[int, int] | None, words: str) -> None:
    with pytest.raises(PromqlError) as caught:
        compile_query(query)
    assert words in caught.value.problem
    assert caught.value.position == position
    where = "" if position is None else f"line {position[0]}, column {position[1]}: "
    assert str(caught.value) == where + caught.value.problem


@pytest.mark.parametrize(
    "pattern",
    [
        "a|b",
        "[*+]+",
        "(?i)abc",
        "[[:alpha:]_]+",
        "x{2,3}",
        "(?i)x|(?m)y",
        "\\\\pL",
        "(?:a|b)c?",
        "(?P<n>a)",
        "\\\\+\\\\+",
    ],
)
def test_an_ordinary_expression_is_accepted(pattern: str) -> None:
    compile_query(f'm{{a=~"{pattern}"}}')


def reach(query: str) -> dict[str, float]:
    selectors = compile_query(query).selectors
    assert all(isinstance(each, Selector) for each in selectors)
    return {", ".join(map(repr, each.matchers)): each.reach for each in selectors}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("m", {"__name__='m'": 300.0}),
        ("rate(m[10m])", {"__name__='m'": 600.0}),
        ("rate(m[10m] offset 1m)", {"__name__='m'": 660.0}),
        ("m + rate(m[10m]) + n", {"__name__='m'": 600.0, "__name__='n'": 300.0}),
        ('m{gpu="1"} + m', {"__name__='m', gpu='1'": 300.0, "__name__='m'": 300.0}),
        ("max_over_time(rate(m[1m])[10m:30s] offset 5m)", {"__name__='m'": 960.0}),
        ("max_over_time(max_over_time(m[2m:1m])[10m:30s])", {"__name__='m'": 1020.0}),
        ("max_over_time(m[1m:10s] @ end() offset 1m) + m offset -1h", {"__name__='m'": 420.0}),
        ("timestamp(m offset 1d)", {"__name__='m'": 86700.0}),
        ("absent_over_time(m[7m])", {"__name__='m'": 420.0}),
        ("- - m", {"__name__='m'": 300.0}),
        ("1 + 2", {}),
    ],
)
def test_a_query_tells_what_it_reads_and_how_far_back(query: str, expected: dict[str, float]) -> None:
    assert reach(query) == expected
