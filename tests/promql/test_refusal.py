"""What cannot be evaluated is refused when it is compiled, by name and place."""

from __future__ import annotations

import pytest

from alerts.promql import EvaluationError, PromqlError, Selector, Storage, compile_query

REFUSED = [
    # What Prometheus has as well, and is not evaluated here.
    ("1 +\n  histogram_count(m)", (2, 3), "function histogram_count() is not supported here"),
    ("1 + max_over_time(m[5m:100us])", (1, 24), 'bad number or duration syntax: "100"'),
    # What is behind a feature flag there.
    ("mad_over_time(m[5m])", (1, 1), 'function "mad_over_time" is not enabled: it is experimental'),
    ('sort_by_label(m, "x")', (1, 1), 'function "sort_by_label" is not enabled: it is experimental'),
    ("sum(limitk(2, m))", (1, 5), "limitk() is experimental"),
    ("rate(m[5m * 2])", (1, 8), "experimental duration expression is not enabled; write the result, such as 10m"),
    ("m offset (5m)", (1, 10), "experimental duration expression is not enabled"),
    ("m offset -(5m)", (1, 10), "experimental duration expression is not enabled"),
    ("m offset --5m + 3", (1, 10), "experimental duration expression is not enabled"),
    # What a later Prometheus or another server has.
    ("step()", (1, 1), 'unknown function with name "step"'),
    ("m + fill(0) n", (1, 5), 'unknown function with name "fill"'),
    ('m{a="1" or b="2"}', (1, 9), 'unexpected identifier "or" in label matching, expected "," or "}"'),
    ("m anchored", (1, 3), 'unexpected identifier "anchored"'),
    # Expressions and labels.
    ('m{a=~"x++"}', (1, 6), "regular expression 'x++': bad repetition operator"),
    ('m{a=~"x{1001}"}', (1, 6), "regular expression 'x{1001}': invalid repetition size"),
    ('m{a=~"["}', (1, 6), "regular expression '['"),
    ('m{a=~"\\xff.*"}', (1, 6), "not valid Unicode"),
    ('label_replace(m, "a", "", "b", "\\\\pL{1000}")', (1, 32), "pattern too large"),
    ('sum by ("\\xff") (m)', (1, 9), "invalid label name for grouping"),
    ('sum by ("") (m)', (1, 9), 'invalid label name for grouping: ""'),
    # Types and counts.
    ("nonsense(m)", (1, 1), 'unknown function with name "nonsense"'),
    ("rat(m[5m])", (1, 1), "unknown function with name \"rat\"; did you mean 'rate'?"),
    ("1 + rate(m)", (1, 10), 'expected type range vector in call to function "rate", got instant vector'),
    ("sum(1)", (1, 5), "expected type instant vector in aggregation expression, got scalar"),
    ("topk(m, m)", (1, 6), "expected type scalar in aggregation parameter, got instant vector"),
    ("count_values(1, m)", (1, 14), "expected type string in aggregation parameter, got scalar"),
    ("topk(m)", (1, 1), "wrong number of arguments for aggregate expression provided, expected 2, got 1"),
    ("sum()", (1, 1), "no arguments for aggregate expression provided"),
    ("rate(m[5m], 1)", (1, 1), 'expected 1 argument(s) in call to "rate", got 2'),
    ("round()", (1, 1), 'expected at least 1 argument(s) in call to "round", got 0'),
    ("round(m, 1, 2)", (1, 1), 'expected at most 2 argument(s) in call to "round", got 3'),
    ("abs(m, )", (1, 6), "trailing commas not allowed in function call args"),
    ("1 > 2", (1, 3), "comparisons between scalars must use BOOL modifier"),
    ("m + bool n", (1, 3), "bool modifier can only be used on comparison operators"),
    ("m + on(a) group_left(a) n", (1, 3), 'label "a" must not occur in ON and GROUP clause at once'),
    ("1 + on(a) 2", (1, 1), "vector matching only allowed between instant vectors"),
    ("m and 1", (1, 1), 'set operator "and" not allowed in binary scalar expression'),
    ("m or on(a) group_left n", (1, 1), 'no grouping allowed for "or" operation'),
    ("m + m[5m]", (1, 5), "binary expression must contain only scalar and instant vector types"),
    ('-"a"', (1, 1), "unary expression only allowed on expressions of type scalar or instant vector"),
    ("m[5m][5m:]", (1, 1), "subquery is only allowed on instant vector, got range vector instead"),
    ("{}", (1, 1), "vector selector must contain at least one non-empty matcher"),
    ('{a=~".*"}', (1, 1), "vector selector must contain at least one non-empty matcher"),
    ('m{"n"}', (1, 1), 'metric name must not be set twice: "m" or "n"'),
    # What stands behind a selector.
    ("(m)[5m]", (1, 4), "ranges only allowed for vector selectors"),
    ("m offset 5m [5m]", (1, 13), "no offset modifiers allowed before range"),
    ("m @ 5 [5m]", (1, 7), "no @ modifiers allowed before range"),
    ("sum(m) offset 5m", (1, 1), "offset modifier must be preceded by an instant vector selector"),
    ("m offset 5m offset 5m", (1, 1), "offset may not be set multiple times"),
    ("m @ 5 @ 5", (1, 1), "@ <timestamp> may not be set multiple times"),
    ("m @ NaN", (1, 1), "timestamp out of bounds for @ modifier: NaN"),
    ("m @ 1e19", (1, 1), "timestamp out of bounds for @ modifier"),
    ("m offset n", (1, 10), 'unexpected identifier "n" in offset, expected number or duration'),
    # Durations.
    ("m[0s]", (1, 3), "duration must be greater than 0"),
    ("m[-5m]", (1, 3), "duration must be greater than 0"),
    ("m[5m:0]", (1, 6), "duration must be greater than 0"),
    ("m[5x]", (1, 3), "bad number or duration syntax"),
    ("m[1.5h]", (1, 3), 'unknown unit "." in duration "1.5h"'),
    ("m[5s5m]", (1, 3), 'not a valid duration string: "5s5m"'),
    ("m[293y]", (1, 3), "duration out of range"),
    ("m[1e300]", (1, 3), "duration out of range"),
    ("m offset 1e300", (1, 10), "duration out of range"),
    ("m offset -1e300", (1, 10), "duration out of range"),
    ("m offset Inf", (1, 10), "duration out of range"),
    # Numbers and texts.
    ("1e400", (1, 1), "value out of range"),
    ("0xffffffffffffffff", (1, 1), "invalid syntax"),
    ("1__0", (1, 1), 'bad number or duration syntax: "1__"'),
    ('"\\q"', (1, 1), "unknown escape sequence U+0071 'q'"),
    ('m{a="\\ud800"}', (1, 5), "escape sequence is an invalid Unicode code point"),
    ('m{a="b}', (1, 5), "unterminated quoted string"),
    ('m{a="\ud800"}', (1, 6), "invalid UTF-8 rune"),
    # The shape.
    ("m > and n", (1, 9), 'unexpected identifier "n"'),  # `and` may be a metric there
    ("sum(m) by (a) n", (1, 15), 'unexpected identifier "n"'),
    ("sum(m n)", (1, 7), 'unexpected identifier "n" in aggregation'),
    ("sum by m", (1, 8), 'unexpected identifier "m" in grouping opts, expected "("'),
    ("m\n  {a=}", (2, 6), 'unexpected "}" in label matching, expected string'),
    ("m = 5", (1, 3), 'unexpected "="'),
    ("m =~ 5", (1, 3), "unexpected character after '=': '~'"),
    ("m)", (1, 2), "unexpected right parenthesis"),
    ("(m", (1, 1), "unclosed left parenthesis"),
    ("sum(m[5m", (1, 6), "unclosed left bracket"),
    ("m{", (1, 2), "unexpected end of input inside braces"),
    ("m é", (1, 3), "unexpected character: 'é'"),
    ("m +", (1, 4), "unexpected end of input"),
    ("", (1, 1), "no expression found in input"),
    (" # nothing\n", (1, 1), "no expression found in input"),
]


@pytest.mark.parametrize(("query", "position", "words"), REFUSED, ids=[repr(each[0]) for each in REFUSED])
def test_a_query_is_refused_with_its_place(query: str, position: tuple[int, int], words: str) -> None:
    with pytest.raises(PromqlError) as caught:
        compile_query(query)
    assert words in caught.value.problem
    assert caught.value.position == position
    assert str(caught.value) == f"line {position[0]}, column {position[1]}: {caught.value.problem}"


DOOMED = [
    (
        "m[5m]",
        "line 1, column 1: rule result is not a vector or scalar: give a range vector to a function such as rate()",
    ),
    ("max_over_time(m[5m:0.0001])", "line 1, column 20: the step of a subquery must be at least 1ms"),
    ('label_replace(m, "a", "$1", "b", "(")', "line 1, column 1: invalid regular expression in label_replace()"),
    ('label_replace(m, "", "$1", "b", "(.*)")', "line 1, column 1: invalid destination label name in label_replace()"),
    ('1 +\n label_join(m, "", "-", "b")', "line 2, column 2: invalid destination label name in label_join()"),
    ('label_join(m, "a", "-", "")', "line 1, column 1: invalid source label name in label_join()"),
    ('count_values("", m)', 'line 1, column 1: invalid label name: ""'),
    ('count_values("\\xff", m)', 'line 1, column 1: invalid label name: "\ufffd"'),
    ('("text")', "line 1, column 1: a string in parentheses is not a result"),
]


@pytest.mark.parametrize(("query", "words"), DOOMED, ids=[each[0] for each in DOOMED])
def test_what_prometheus_loads_and_fails_at_is_reported_when_it_is_read_and_fails_each_time(
    query: str, words: str
) -> None:
    compiled = compile_query(query)
    assert len(compiled.doom) == 1
    assert words in compiled.doom[0]
    with pytest.raises(EvaluationError):
        compiled.evaluate(Storage(), 5.0)


def test_a_query_that_can_succeed_is_not_doomed() -> None:
    assert compile_query('label_replace(max_over_time(m[5m:1ms]), "a", "$1", "b", "(.*)")').doom == ()


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
        ("m @ 5 offset 1h", {"__name__='m'": 300.0}),
        ("max_over_time(m[1m:10s] @ 5)", {"__name__='m'": 300.0}),
        ("max_over_time((m @ 5)[1h:10s]) + max_over_time(n[2m:10s])", {"__name__='m'": 300.0, "__name__='n'": 420.0}),
        ("timestamp(m offset 1d)", {"__name__='m'": 86700.0}),
        ("absent_over_time(m[7m])", {"__name__='m'": 420.0}),
        ("- - m", {"__name__='m'": 300.0}),
        ("1 + 2", {}),
    ],
)
def test_a_query_knows_what_it_reads_and_how_far_back(query: str, expected: dict[str, float]) -> None:
    assert reach(query) == expected
