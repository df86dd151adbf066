"""However long, dense or deep a query is, it is evaluated or refused; neither takes the stack or much memory."""

import tracemalloc
from collections.abc import Iterator

import pytest

from alerts.promql import (
    EvaluationError,
    PromqlError,
    Sample,
    Scalar,
    Selector,
    Storage,
    Value,
    compile_query,
    make_labels,
)
from alerts.promql.budget import Budget
from alerts.promql.labels import Matcher, only_metric_name
from alerts.promql.storage import Newest, Window
from alerts.promql.syntax.scanner import DEEPEST, LONGEST_TEXT, MOST_TOKENS
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
            assert str(error).startswith("line 1, column ")
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
    assert str(caught.value).startswith("line {}, column {}: ".format(*at))


ROW = 700


@pytest.mark.parametrize(
    ("first", "more", "value"),
    [
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
    for name in "mno":
        storage.append(make_labels({"a": "b"}, name), 1.0, 3.0)
    storage.append(make_labels({"a": "b", "c": "d"}, "o"), 2.0, 3.0)
    storage.append(make_labels({"a": "b"}, "m"), 2.0, 30.0)
    expected = query.evaluate(storage, 1.0)
    for _ in range(3):
        with pytest.raises(EvaluationError):
            query.evaluate(storage, 2.0)
        assert query.evaluate(storage, 1.0) == expected


@pytest.mark.parametrize(
    "text",
    ["m" + " or m" * (MOST_TOKENS // 2 - 1), "m" + "+1" * (MOST_TOKENS // 2 - 1), "m" + "#\n" * 32_000,
     "m" + " " * (LONGEST_TEXT - 1), '"' + "x" * (LONGEST_TEXT - 2) + '"'],
    ids=["vectors", "numbers", "comments", "spaces", "string"],
)  # fmt: skip
def test_the_largest_query_is_read_and_takes_little_memory(text: str) -> None:
    compile_query("m or m + 1")
    tracemalloc.start()
    try:
        compile_query(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * 2**20


AT = 100.0


class Watched(Storage):
    """Two series of `m` and one of `quiet`, which is below 5; notes the names that are read, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str | None] = []
        for name, gpu, value in (("m", "0", 1.0), ("m", "1", 2.0), ("quiet", "0", 3.0)):
            for second in range(60):
                self.append(make_labels({"gpu": gpu}, name), AT - 60 + second, value + second / 60)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget) -> Iterator[Window]:
        self.read.append(only_metric_name(matchers))
        return super().select(matchers, start, end, budget)

    def newest(self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget) -> list[Newest]:
        self.read.append(only_metric_name(matchers))
        return super().newest(matchers, start, end, budget)


@pytest.mark.parametrize("query", ["absent(nothing)", "nothing or vector(1)", "count(nothing) or on () vector(0)"])
def test_a_query_that_has_a_result_without_series_has_it(query: str) -> None:
    found = compile_query(query).evaluate(Watched(), AT)
    assert isinstance(found, list)
    assert len(found) == 1


WITHOUT_SERIES = [
    "max by (x) (nothing) == 0",
    "m and nothing",
    "nothing unless m",
    "count_over_time(nothing[1m:1s]) >= 10",
    "(nothing > 1) unless (nothing > 2) unless (m > 3) unless (m > 4)",
    'label_replace(max_over_time(nothing[5m]) > 1, "a", "b", "", "") or label_replace(none, "a", "c", "", "")',
    'label_join(nothing, "x", "-", "y", "z")',
    "abs(nothing - (nothing offset 10s)) / 10",
    "predict_linear(nothing[5m], 60) > 0",
    "quantile_over_time(0.75, nothing[5m])",
]
"""Where no series is there, nothing is read."""


@pytest.mark.parametrize(
    ("query", "read"),
    [
        *((query, []) for query in WITHOUT_SERIES),
        ("(quiet > 5) and (m > 0)", ["quiet"]),
        ("(quiet > 5) unless max by (gpu) (rate(m[1m]))", ["quiet"]),
        ("(quiet > 5) / on (gpu) m", ["quiet"]),
        ("(quiet > 5) and (quiet < 9) and m", ["quiet"]),
        ("(quiet > 5) or (m > 5)", ["quiet", "m"]),
        ('(quiet > 5) and ({gpu="0"} > 5)', ["quiet", None]),  # of two names, it might clash
    ],
)
def test_what_an_empty_side_makes_needless_is_not_read(query: str, read: list[str | None]) -> None:
    storage = Watched()
    assert compile_query(query).evaluate(storage, AT) == []
    assert storage.read == read


@pytest.mark.parametrize(
    "query",
    [
        "nothing and (m + on () m)",
        "nothing unless (m * on () group_left () m)",
        '(quiet > 5) and rate({gpu="0"}[1m])',
        "(m + on () m) and nothing",
        'count_over_time(label_replace(nothing, "gpu", "x", "", "")[1m:1s]) + (m + on () m)',
    ],
)
def test_an_error_is_reported_whether_or_not_the_elements_are_needed(query: str) -> None:
    with pytest.raises(EvaluationError):
        compile_query(query).evaluate(Watched(), AT)


REFUSED = [
    # What Prometheus has as well, and is not evaluated here.
    ("1 +\n  histogram_count(m)", (2, 3), "function histogram_count() is not supported here"),
    ("1 + max_over_time(m[5m:100us])", (1, 24), 'bad number or duration syntax: "100"'),
    # What is behind a feature flag there.
    ("mad_over_time(m[5m])", (1, 1), 'function "mad_over_time" is not enabled: it is experimental'),
    ("sum(limitk(2, m))", (1, 5), "limitk() is experimental"),
    ("m offset (5m)", (1, 10), "experimental duration expression is not enabled; write the result, such as 10m"),
    # What a later Prometheus or another server has.
    ("m + fill(0) n", (1, 5), 'unknown function with name "fill"'),
    ('m{a="1" or b="2"}', (1, 9), 'unexpected identifier "or" in label matching, expected "," or "}"'),
    # Expressions and labels.
    ('m{a=~"\\xff.*"}', (1, 6), "not valid Unicode"),
    ('label_replace(m, "a", "", "b", "\\\\pL{1000}")', (1, 32), "pattern too large"),
    ('sum by ("\\xff") (m)', (1, 9), "invalid label name for grouping"),
    # Types and counts.
    ("rat(m[5m])", (1, 1), "unknown function with name \"rat\"; did you mean 'rate'?"),
    ("1 + rate(m)", (1, 10), 'expected type range vector in call to function "rate", got instant vector'),
    ("sum(1)", (1, 5), "expected type instant vector in aggregation expression, got scalar"),
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
    ('{a=~".*"}', (1, 1), "vector selector must contain at least one non-empty matcher"),
    ('m{"n"}', (1, 1), 'metric name must not be set twice: "m" or "n"'),
    # What stands behind a selector.
    ("(m)[5m]", (1, 4), "ranges only allowed for vector selectors"),
    ("m offset 5m [5m]", (1, 13), "no offset modifiers allowed before range"),
    ("m @ 5 [5m]", (1, 7), "no @ modifiers allowed before range"),
    ("sum(m) offset 5m", (1, 1), "offset modifier must be preceded by an instant vector selector"),
    ("m offset 5m offset 5m", (1, 1), "offset may not be set multiple times"),
    ("m @ 5 @ 5", (1, 1), "@ <timestamp> may not be set multiple times"),
    ("m @", (1, 4), "unexpected end of input in @, expected timestamp"),
    ("m @ NaN", (1, 1), "timestamp out of bounds for @ modifier: NaN"),
    ("m offset n", (1, 10), 'unexpected identifier "n" in offset, expected number or duration'),
    # Durations.
    ("m[0s]", (1, 3), "duration must be greater than 0"),
    ("m[1.5h]", (1, 3), 'unknown unit "." in duration "1.5h"'),
    ("m[.1y]", (1, 3), 'not a valid duration string: ".1y"'),
    ("m[293y]", (1, 3), "duration out of range"),
    ("m offset 1e300", (1, 10), "duration out of range"),
    # Numbers and texts.
    ("1e400", (1, 1), "value out of range"),
    ("0xffffffffffffffff", (1, 1), "invalid syntax"),
    ("1.5.5", (1, 1), 'bad number or duration syntax: "1.5."'),
    ('"\\', (1, 1), "escape sequence not terminated"),
    ('"\\xg"', (1, 1), "illegal character U+0067 'g' in escape sequence"),
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
    ("sum by (+) (m)", (1, 9), "unexpected <op:+> in grouping opts, expected label"),
    ("{{", (1, 2), "unexpected left brace '{'"),
    ("m ! n", (1, 3), "unexpected character after '!': ' '"),
    ("m 5", (1, 3), 'unexpected number "5"'),
    ("m[5m)]", (1, 5), "unexpected right parenthesis"),
    ("]", (1, 1), "unexpected right bracket"),
    ("(m", (1, 1), "unclosed left parenthesis"),
    ("sum(m[5m", (1, 6), "unclosed left bracket"),
    ("m{", (1, 2), "unexpected end of input inside braces"),
    ("m é", (1, 3), "unexpected character: 'é'"),
    ("m +", (1, 4), "unexpected end of input"),
    ("", (1, 1), "no expression found in input"),
]


@pytest.mark.parametrize(("query", "position", "words"), REFUSED, ids=[repr(each[0]) for each in REFUSED])
def test_a_query_is_refused_with_its_place(query: str, position: tuple[int, int], words: str) -> None:
    with pytest.raises(PromqlError) as caught:
        compile_query(query)
    assert words in caught.value.problem
    assert str(caught.value) == f"line {position[0]}, column {position[1]}: {caught.value.problem}"


DOOMED = [
    ("m[5m]", "line 1, column 1: rule result is not a vector or scalar: give a range vector to a function such as"),
    ("max_over_time(m[5m:0.0001])", "line 1, column 20: the step of a subquery must be at least 1ms"),
    ('label_replace(m, "a", "$1", "b", "(")', "line 1, column 1: invalid regular expression in label_replace()"),
    ('label_replace(m, "", "$1", "b", "(.*)")', "line 1, column 1: invalid destination label name in label_replace()"),
    ('1 +\n label_join(m, "", "-", "b")', "line 2, column 2: invalid destination label name in label_join()"),
    ('label_join(m, "a", "-", "")', "line 1, column 1: invalid source label name in label_join()"),
    ('count_values("", m)', 'line 1, column 1: invalid label name: ""'),
    ('count_values("\\xff", m)', 'line 1, column 1: invalid label name: "\ufffd"'),
    ('("text")', "line 1, column 1: rule result is not a vector or scalar"),
]


@pytest.mark.parametrize(("query", "words"), DOOMED, ids=[each[0] for each in DOOMED])
def test_a_query_that_can_only_fail_is_reported_when_it_is_read_and_fails_each_time(query: str, words: str) -> None:
    compiled = compile_query(query)
    assert words in compiled.inevitable_error
    with pytest.raises(EvaluationError):
        compiled.evaluate(Storage(), 5.0)
    assert compile_query('label_replace(max_over_time(m[5m:1ms]), "a", "$1", "b", "(.*)")').inevitable_error == ""


def history(query: str) -> dict[str, float]:
    selectors = compile_query(query).selectors
    assert all(isinstance(each, Selector) for each in selectors)
    return {", ".join(map(repr, each.matchers)): each.history for each in selectors}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rate(m[10m] offset 1m)", {"__name__='m'": 660.0}),
        ("m + rate(m[10m]) + n", {"__name__='m'": 600.0, "__name__='n'": 0.0}),
        ('m{gpu="1"} + m', {"__name__='m', gpu='1'": 0.0, "__name__='m'": 0.0}),
        ("max_over_time(rate(m[1m])[10m:30s] offset 5m)", {"__name__='m'": 960.0}),
        ("max_over_time(max_over_time(m[2m:1m])[10m:30s])", {"__name__='m'": 720.0}),
        ("max_over_time(m[1m:10s] @ end() offset 1m) + m offset -1h", {"__name__='m'": 120.0}),
        ("m @ 5 offset 1h", {"__name__='m'": 0.0}),
        ("max_over_time(m[1m:10s] @ 5)", {"__name__='m'": 0.0}),
        ("max_over_time((m @ 5)[1h:10s]) + max_over_time(n[2m:10s])", {"__name__='m'": 0.0, "__name__='n'": 120.0}),
        ("timestamp(m offset 1d)", {"__name__='m'": 86400.0}),
        ("absent_over_time(m[7m])", {"__name__='m'": 420.0}),
        ("- - m", {"__name__='m'": 0.0}),
        ("1 + 2", {}),
    ],
)
def test_a_query_knows_what_it_reads_and_how_far_back(query: str, expected: dict[str, float]) -> None:
    assert history(query) == expected
