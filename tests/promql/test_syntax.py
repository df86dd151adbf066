"""What a query's text means: every form of Prometheus 3.5's grammar that is only a matter of reading."""

import math

import pytest
from msgspec import Struct

from alerts.promql import Scalar, Storage, compile_query, make_labels
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import ParenExpr, StringLiteral

NUMBERS = [
    ("1_000", 1000.0), ("0x1F", 31.0), ("0X_1f", 31.0), ("017", 15.0), ("0_17", 15.0), ("08", 8.0), ("00", 0.0),
    (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-3", 0.001), ("1_0.5e0_1", 105.0), ("+5", 5.0), ("-5", -5.0),
    ("--5", 5.0), ("- - -5", -5.0), ("Inf", math.inf), ("-iNF", -math.inf), ("+INF", math.inf), ("1e-400", 0.0),
    ("9007199254740993", 9007199254740992.0), ("9223372036854775808", 2.0**63),
    ("0777777777777777777777777", 777777777777777777777777.0),  # too long for octal, so Go reads it as a float
    ("5m", 300.0), ("-1h30m", -5400.0), ("1y2w3d4h5m6s7ms", 33019506.007), ("0s", 0.0), ("05m", 300.0),
]  # fmt: skip

TEXTS = [
    ('"a"', "a"), ("'a'", "a"), ("`a`", "a"), ("`a\\b`", "a\\b"), ("`\\d+\n`", "\\d+\n"), ('"\\\\d"', "\\d"),
    ('"\\a\\b\\f\\n\\r\\t\\v"', "\a\b\f\n\r\t\v"), ('"\\""', '"'), ("'\\''", "'"), ("'\"'", '"'), ('"\\xc3\\xa9"', "é"),
    ('"\\303\\251"', "é"), ('"\\u00e9"', "é"), ('"\\U0001F600x"', "😀x"), ('"é\\x41"', "éA"), ('""', ""),
    ('"# no comment"', "# no comment"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_a_number_has_the_value_that_go_gives_it(text: str, value: float) -> None:
    assert compile_query(text).evaluate(Storage(), 0.0) == Scalar(value)


@pytest.mark.parametrize(("text", "value"), TEXTS)
def test_a_text_has_the_value_that_go_gives_it(text: str, value: str) -> None:
    assert content(parse(text)) == [StringLiteral, value]


def stored(*names: str, **labels: str) -> Storage:
    storage = Storage()
    for name in names:
        storage.append(make_labels(labels, name), 1.0, 7.0)
    return storage


@pytest.mark.parametrize(
    "name",
    ["avg", "and", "or", "unless", "by", "without", "offset", "start", "end", "sum", "count_values", "group", "limitk",
     "anchored", "smoothed", "fill", "rate", "a:b", ":a", "infinity", "_"],
)  # fmt: skip
def test_what_is_a_word_elsewhere_may_be_a_metric(name: str) -> None:
    storage = stored(name, a="b")
    for query in (name, f'{name}{{a="b"}}', f"({name})", f"{name} == 7", f"max({name})", f"last_over_time({name}[5m])"):
        (sample,) = compile_query(query).evaluate(storage, 1.0)
        assert sample.value == 7.0, query


@pytest.mark.parametrize(
    "label", ["on", "by", "bool", "group_left", "sum", "and", "offset", "start", "ignoring", "atan2"]
)
def test_what_is_a_word_elsewhere_may_be_a_label(label: str) -> None:
    storage = stored("m", **{label: "x"})
    for query in (f'm{{{label}="x"}}', f"sum by ({label},) (m)", f"m * on({label}) group_left(a) m"):
        (sample,) = compile_query(query).evaluate(storage, 1.0)
        assert (label, "x") in sample.labels


@pytest.mark.parametrize(
    "query",
    ['{"metric.name"}', "{'metric.name', \"a b\"=\"x\"}", '{"a b"="x","metric.name",}', '{__name__="metric.name"}',
     'sum by (`a b`) ({"metric.name"})', '{"metric.name"} * on("a b") group_left() {"metric.name"}'],
)  # fmt: skip
def test_quoted_names_may_be_anything(query: str) -> None:
    (sample,) = compile_query(query).evaluate(stored("metric.name", **{"a b": "x"}), 1.0)
    assert ("a b", "x") in sample.labels


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("M{a='b'} # comment\n[5m]", 'M{a="b"}[5m]'),
        ("SUM BY (a) (m OFFSET 5m)", "sum(m offset 5m) by (a,)"),
        ("m AND ON (a,) n", "m and on(a) n"),
        ("m[+0.5]", "m[500ms]"),
        ("m[--5m:1_0]", "m[5m:10s]"),
        ("m[5m x 1m]", "m[5m:1m]"),  # any letter is a colon there
        ("m offset 300", "m offset 5m"),
        ("m offset -0.5", "m offset -500ms"),
        ("m offset 0 offset 5m", "m offset 5m"),
        ("m offset 5m @ end()", "m @ end() offset 5m"),
        ("m @ start() [5m]", "m[5m] @ start()"),
        ("m offset 0 [5m]", "m[5m]"),
        ("m @ 5m", "m @ 300"),
        ("m offset 5m + 3", "(m offset 5m) + 3"),
        ("a or b and c == d + e * f ^ g", "a or (b and (c == (d + (e * (f ^ g)))))"),
        ("a ^ b ^ c", "a ^ (b ^ c)"),
        ("a - b - c", "(a - b) - c"),
        ("a / b atan2 c % d", "((a / b) atan2 c) % d"),
        ("-a ^ b", "-(a ^ b)"),
        ("-a * b", "(-a) * b"),
        ("2 ^ -a * b", "(2 ^ (-a)) * b"),
    ],
)
def test_two_ways_of_writing_are_one_query(query: str, same: str) -> None:
    assert content(parse(query)) == content(parse(same))


def content(node: object) -> object:
    """What a tree says, without its parentheses and its places in the text."""
    while isinstance(node, ParenExpr):
        node = node.inner
    if isinstance(node, tuple):
        return [content(each) for each in node]
    if not isinstance(node, Struct):
        return node
    fields = (name for name in node.__struct_fields__ if name not in ("at", "step_at", "operator_at"))
    return [type(node), *(content(getattr(node, name)) for name in fields)]


def test_a_plus_changes_nothing_and_an_empty_step_is_the_default_step() -> None:
    (sample,) = compile_query("+m").evaluate(stored("m"), 1.0)
    assert sample.labels == make_labels({}, "m")
    query = "count_over_time(vector(1)[1m:0.0000000001])"
    (sample,) = compile_query(query, default_step=20).evaluate(Storage(), 60.0)
    assert sample.value == 3.0
    assert compile_query("rate(m[0.0004])").evaluate(stored("m"), 1.0) == []
